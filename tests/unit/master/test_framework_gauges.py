"""Frameworks with series of their own, and the sum of all others."""

from __future__ import annotations

import pytest

from croupier.master.core.frameworks import Framework
from croupier.master.metrics.series import FRAMEWORKS, TopNames, framework_series
from croupier.process.metric_families import FamilyCollector
from tests.harness.world import World, make_task


def scrape(world: World, most: int) -> dict[str, dict[str, float]]:
    series = framework_series(world.state, TopNames(most), 0.0)
    return {
        metric.name.removeprefix("croupier_framework_"): {
            sample.labels["name"]: sample.value for sample in metric.samples
        }
        for metric in FamilyCollector(FRAMEWORKS, lambda: series).collect()
    }


def cluster() -> World:
    """Three frameworks hold 6, 2 and 1 of 9 cpus; a fourth holds nothing and wants 5 units."""
    world = World()
    world.agent("cpus:9;mem:9GB")
    for name, cpus in {"big": 6, "mid": 2, "small": 1}.items():
        framework = world.framework(demand=f"cpus:{cpus};mem:1GB", count=1, name=name)
        world.accept(framework, make_task("t", f"cpus:{cpus};mem:1GB"))
    world.framework(demand="cpus:1;mem:1GB", count=5, name="starved")
    return world


def test_one_that_waits_is_exported_before_one_with_a_small_share() -> None:
    series = scrape(cluster(), 2)
    assert set(series["tasks"]) == {"big", "starved", "other"}
    assert series["pending"] == {"big": 0, "starved": 5, "other": 0}
    assert series["tasks"] == {"big": 1, "starved": 0, "other": 2}
    assert series["dominant_share"]["big"] == pytest.approx(2 / 3)
    assert series["dominant_share"]["other"] == pytest.approx(1 / 3)
    assert series["entitlement"]["starved"] == pytest.approx(1 / 4)
    assert series["entitlement"]["other"] == pytest.approx(1 / 2)


def test_without_series_of_their_own_all_are_other() -> None:
    series = scrape(cluster(), 0)
    assert series["tasks"] == {"other": 3}
    assert series["pending"] == {"other": 5}


def test_a_framework_that_is_gone_has_no_series() -> None:
    world, names = cluster(), TopNames(4)
    framework_series(world.state, names, 0.0)
    gone: Framework = world.state.frameworks.pop(next(iter(world.state.frameworks)))
    series = framework_series(world.state, names, 1.0)
    assert gone not in series.members
