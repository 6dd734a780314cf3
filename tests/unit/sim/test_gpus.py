"""Placement on single GPUs, and fragmentation."""

from __future__ import annotations

import pytest

from croupier.model.ids import AgentId
from croupier.model.resources import Resources
from croupier.sim.gpus import GpuNeed, GpuNode, GpuPlaces
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

SIZE = Size.of(8, 64)
USE = Size.of(1, 1)
HALF, ONE, TWO = GpuNeed(1, 500, USE), GpuNeed(1, 1000, USE), GpuNeed(2, 1000, USE)
NODE = AgentId("n")


def make_places(*works: tuple[Work, GpuNeed], gpus: int = 2) -> tuple[GpuPlaces, GpuNode]:
    node = GpuNode(gpus, SIZE)
    places = GpuPlaces({NODE: node}, [need for _, need in works])
    for work, need in works:
        places.need(work, need)
    return places, node


def work() -> Work:
    return Work(Shape(Resources.parse("gpu-share:1"), USE), 1.0)


class TestNode:
    def test_a_gpu_part_goes_to_the_fullest_gpu_that_fits(self) -> None:
        node = GpuNode(3, SIZE)
        node.free = [1000, 600, 500]
        assert node.find(HALF) == [2]
        assert node.find(GpuNeed(1, 550, USE)) == [1]
        assert node.find(ONE) == [0]

    def test_enough_gpus_in_sum_may_not_fit(self) -> None:
        node = GpuNode(2, SIZE)
        node.free = [900, 900]
        assert node.find(ONE) is None
        assert node.find(GpuNeed(0, 0, USE)) == []
        assert node.useless_for(ONE) == 1800
        assert node.useless_for(HALF) == 0

    def test_free_gpus_without_cpus_are_fragmented(self) -> None:
        node = GpuNode(2, Size.of(0.5, 64))
        assert node.useless_for(HALF) == 2000


class TestPlaces:
    def test_as_many_tasks_as_fit_are_placed_and_given_back(self) -> None:
        works = [work() for _ in range(3)]
        places, node = make_places(*((each, ONE) for each in works))
        assert places.take(NODE, works) == 2
        assert (places.taken, node.free) == (2000, [0, 0])
        places.give_back(works[0])
        assert (places.taken, sum(node.free), node.left) == (1000, 1000, Size.of(7, 63))
        assert places.take(NODE, works[2:]) == 1

    def test_fragmentation_is_weighted_by_frequency(self) -> None:
        works = [work() for _ in range(4)]
        places, _ = make_places(*zip(works, (HALF, ONE, ONE, TWO), strict=True))
        assert places.useless == 0
        places.take(NODE, works[:1])
        # 1,500 are free: tasks of half a GPU can use all, of one GPU 1,000, of two GPUs none.
        assert places.useless == pytest.approx(0.25 * 0 + 0.5 * 500 + 0.25 * 1500)
        places.give_back(works[0])
        assert places.useless == pytest.approx(0)
