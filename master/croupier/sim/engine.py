"""The allocator that a run gives its master."""

from __future__ import annotations

from croupier.master.allocator import Allocator, Rules, policies


def make_allocator(
    policy: str = "drf", order: str = "random", seed: int = 0, scarce: str = "gpus"
) -> Allocator:
    """A fresh allocator.

    Args:
        policy: who is dealt to next; one of `policies.NAMES`.
        order: which agent comes first: `arrival`, `random`, `pack` or `spread`.
        seed: of its chance.
        scarce: the resource that is kept for those who ask for it.

    Raises:
        InvalidRequest: if there is no such policy.
    """
    rules = Rules(order=order, seed=seed, scarce=frozenset({scarce}))
    return Allocator(policies.make(policy, seed), rules)
