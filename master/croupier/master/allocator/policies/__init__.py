"""Policies: the order in which frameworks are dealt to, behind one protocol.

`drf` is the default; the others are for comparison with it. `--policy` of the master takes these
names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from croupier.master.allocator.policies.drf import Drf
from croupier.master.allocator.policies.flat import Fifo, Random
from croupier.master.allocator.policies.naive import Asset, SingleResource, Slots, YarnDrf
from croupier.master.allocator.policies.policy import Key, Policy
from croupier.model.errors import InvalidRequest

_POLICIES: Final = (Drf, YarnDrf, Fifo, Asset, SingleResource, Slots, Random)
_BY_NAME: Final[dict[str, Callable[[], Policy]]] = {each.name: each for each in _POLICIES}
NAMES: Final = tuple(_BY_NAME)


def make(name: str, seed: int = 0) -> Policy:
    """Return a policy by name, `seed` for the random one; raises InvalidRequest if unknown."""
    if name not in _BY_NAME:
        raise InvalidRequest(f"{name[:80]!r} is not a policy: {', '.join(NAMES)}")
    return Random(seed) if name == Random.name else _BY_NAME[name]()


__all__ = [
    "NAMES",
    "Asset",
    "Drf",
    "Fifo",
    "Key",
    "Policy",
    "Random",
    "SingleResource",
    "Slots",
    "YarnDrf",
    "make",
]
