"""Frameworks that will be removed; `scenarios/failover/operators.txt` tells of teardowns."""

from __future__ import annotations

from croupier.master.services.views import view_framework
from tests.harness.restarting import Scene


def test_disconnected_framework_shows_its_removal_time() -> None:
    scene = Scene()
    framework = scene.state.frameworks[scene.owner]
    assert not view_framework(scene.state, framework, scene.now).HasField("removed_in_ms")
    scene.end_session(scene.session)
    scene.pass_time(10.0)
    framework = scene.state.frameworks[scene.owner]
    assert view_framework(scene.state, framework, scene.now).removed_in_ms == 590_000
