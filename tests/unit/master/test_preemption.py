"""The work of a check for preemption is bounded; `scenarios/preemption*.txt` tell the rest."""

from __future__ import annotations

import pytest

from croupier.master.allocator.entitlements import Ratio
from croupier.master.allocator.preemptor import EFFORT
from croupier.master.allocator.starvation import PreemptionRules, ShareProjection
from croupier.master.core.settings import Settings
from tests.harness.world import World, make_task

HURRY = Settings(preemption=PreemptionRules(True, fair_timeout_s=5.0, grace_s=10.0))


def pass_time(world: World, seconds: float) -> None:
    """Let time pass while all peers send heartbeats."""
    for peer in world.state.peers.values():
        peer.last_received = world.now + seconds
    world.pass_time(seconds)


def test_check_is_bounded_when_many_starve_without_victims() -> None:
    """A hundred frameworks demand more than victims can yield: comparisons are bounded."""
    world = World(settings=HURRY)
    for _ in range(10):
        world.agent("cpus:40;mem:4GB")
    for number in range(40):
        session = world.framework(f"early{number}", "cpus:1;mem:1MB", 10)
        world.accept(session, *(make_task(f"t{n}", "cpus:1;mem:1MB") for n in range(10)))
    for number in range(100):
        world.framework(f"late{number}", "cpus:40;mem:1MB")
    made = 0
    original = ShareProjection.satisfaction

    def counted(self: ShareProjection, *words: object, **named: object) -> Ratio:
        nonlocal made
        made += 1
        return original(self, *words, **named)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShareProjection, "satisfaction", counted)
        for _ in range(20):
            made = 0
            pass_time(world, 1.0)
            assert made < 10 * EFFORT
