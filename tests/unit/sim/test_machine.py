"""The cost of overcommitting a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest

from croupier.model.ids import AgentId
from croupier.model.resources import Resources
from croupier.sim.gpus import GpuNeed, GpuNode, GpuPlaces
from croupier.sim.machine import Cliff, Even, Machine, Size, speed_of
from croupier.sim.work import Shape, Work

NODE = Size.of(8, 6)
KeyT = TypeVar("KeyT")


class TestSpeed:
    @pytest.mark.parametrize(
        ("what", "mem_gb", "used", "expected"),
        [
            ("undisturbed while all fits", 2, Size.of(8, 6), 1.0),
            ("CPUs are shared in proportion", 2, Size.of(16, 6), 0.5),
            ("a quarter too much memory, 2 GiB", 2, Size.of(8, 8), 1 / (1 + 5 * 0.25 * 2)),
            ("a quarter too much memory, half a GiB", 0.5, Size.of(8, 8), 1 / (1 + 5 * 0.25 / 2)),
            ("both", 2, Size.of(16, 8), 0.5 / 3.5),
        ],
    )
    def test_model(self, what: str, mem_gb: float, used: Size, expected: float) -> None:
        mem = Size.of(1, mem_gb).mem
        assert speed_of(mem, used, NODE) == pytest.approx(expected), what

    def test_paging_that_costs_nothing_slows_nothing(self) -> None:
        assert speed_of(Size.of(1, 2).mem, Size.of(8, 12), NODE, Even(0.0)) == 1.0

    def test_a_cliff_costs_nothing_before_it_and_much_behind(self) -> None:
        cliff = Cliff(slack=0.1, onset=1.0, growth=4.0)
        task = Size.of(2, 2).mem
        size = Size.of(8, 10)
        assert speed_of(task, Size.of(8, 11), size, cliff) == 1.0
        assert speed_of(task, Size.of(8, 12), size, cliff) == pytest.approx(1 / 3.8)


class TestMachine:
    def test_work_done_before_a_slowdown_counts(self) -> None:
        machine: Machine[str] = Machine(NODE)
        machine.start("a", Size.of(8, 1), 10.0, now=0.0)
        assert machine.next_end() == 10.0
        machine.start("b", Size.of(8, 1), 10.0, now=4.0)
        # 6 s of "a" remain, at half speed.
        assert machine.next_end() == pytest.approx(16.0)
        assert list(_take(machine, 16.0)) == ["a"]
        # "b" has done 6 of 10, and is alone on the machine.
        assert machine.next_end() == pytest.approx(20.0)
        assert machine.busy == Size.of(8, 1)

    def test_tasks_with_more_memory_suffer_more(self) -> None:
        machine: Machine[str] = Machine(NODE)
        machine.start("small", Size.of(1, 0.5), 10.0, now=0.0)
        for i in range(3):
            machine.start(f"large{i}", Size.of(2, 2), 10.0, now=0.0)
        # 6.5 of 6 GiB: a thirteenth is missing.
        missing = 0.5 / 6.5
        assert machine.next_end() == pytest.approx(10 * (1 + 5 * missing * 0.5))
        cpus = 1 / (1 + 5 * missing * 0.5) + 6 / (1 + 5 * missing * 2)
        assert machine.busy.cpus == pytest.approx(cpus * 1000, abs=1)
        assert machine.busy.mem == NODE.mem

    def test_tasks_that_should_end_together_do(self) -> None:
        machine: Machine[int] = Machine(NODE)
        for i in range(10):
            machine.start(i, Size.of(0.1, 0.1), 0.1 * (10 - i), now=0.1 * i)
        assert len(list(_take(machine, 0.1 * 9 + 0.1))) == 10

    def test_stopped_tasks_do_not_end(self) -> None:
        machine: Machine[str] = Machine(NODE)
        machine.start("a", Size.of(1, 1), 1.0, now=0.0)
        machine.stop("a", 0.5)
        assert machine.next_end() is None
        # The same name again is another task.
        machine.start("a", Size.of(1, 1), 5.0, now=0.6)
        assert machine.next_end() == pytest.approx(5.6)
        assert list(_take(machine, 1.0)) == []
        machine.clear(2.0)
        assert len(machine) == 0
        assert machine.used == Size(0, 0)


def _take(machine: Machine[KeyT], now: float) -> Iterator[KeyT]:
    for key in machine.done(now):
        machine.stop(key, now)
        yield key


# Placement on single GPUs, and fragmentation.


SIZE = Size.of(8, 64)
USE = Size.of(1, 1)
HALF, ONE, TWO = GpuNeed(1, 500, USE), GpuNeed(1, 1000, USE), GpuNeed(2, 1000, USE)
GPU_NODE = AgentId("n")


def make_places(*works: tuple[Work, GpuNeed], gpus: int = 2) -> tuple[GpuPlaces, GpuNode]:
    node = GpuNode(gpus, SIZE)
    places = GpuPlaces({GPU_NODE: node}, [need for _, need in works])
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
        assert places.take(GPU_NODE, works) == 2
        assert (places.taken, node.free) == (2000, [0, 0])
        places.give_back(works[0])
        assert (places.taken, sum(node.free), node.left) == (1000, 1000, Size.of(7, 63))
        assert places.take(GPU_NODE, works[2:]) == 1

    def test_fragmentation_is_weighted_by_frequency(self) -> None:
        works = [work() for _ in range(4)]
        places, _ = make_places(*zip(works, (HALF, ONE, ONE, TWO), strict=True))
        assert places.useless == 0
        places.take(GPU_NODE, works[:1])
        # 1,500 are free: tasks of half a GPU can use all, of one GPU 1,000, of two GPUs none.
        assert places.useless == pytest.approx(0.25 * 0 + 0.5 * 500 + 0.25 * 1500)
        places.give_back(works[0])
        assert places.useless == pytest.approx(0)
