"""Injectors: one per kind of fault. An injector returns False if the fault has no target.

Rule: each effect is undone after the fault's duration, or when the world is healed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.chaos.virtual.faults import ALL_WEIGHTS, Fault
from tests.chaos.virtual.injectors import moments, network, operators, processes

if TYPE_CHECKING:
    from tests.chaos.virtual.world import World

# By kind of fault, which names its injector.
INJECTORS: dict[str, Callable[[World, Fault], bool]] = {
    kind: injector
    for module in (processes, network, moments, operators)
    for kind, injector in vars(module).items()
    if kind in ALL_WEIGHTS
}
