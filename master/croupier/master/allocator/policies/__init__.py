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

_MAKERS: Final[dict[str, Callable[[int], Policy]]] = {
    Drf.name: lambda _: Drf(),
    YarnDrf.name: lambda _: YarnDrf(),
    Fifo.name: lambda _: Fifo(),
    Asset.name: lambda _: Asset(),
    SingleResource.name: lambda _: SingleResource(),
    Slots.name: lambda _: Slots(),
    Random.name: Random,
}
NAMES: Final = tuple(_MAKERS)


def make(name: str, seed: int = 0) -> Policy:
    """Return a policy by name; `seed` is for the random one.

    Raises:
        InvalidRequest: if there is none.
    """
    if name not in _MAKERS:
        raise InvalidRequest(f"{name[:80]!r} is not a policy: {', '.join(NAMES)}")
    return _MAKERS[name](seed)


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
