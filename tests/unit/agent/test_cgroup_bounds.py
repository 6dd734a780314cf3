from __future__ import annotations

import pytest

from croupier.agent.core.events import Exceeded
from croupier.agent.isolation.cgroup.bounds import (
    MIB,
    Bounds,
    Measured,
    bounds_of,
    bounds_of_all,
    ending_of,
    mib,
)
from croupier.model.isolation import MAX_AMOUNT, Limits, Usage
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Reason

USED = Usage(memory_peak=64 * MIB)


@pytest.mark.parametrize(
    ("cpus", "shares", "weight"),
    [("", 2, 1), ("cpus:0.001", 2, 1), ("cpus:1", 1024, 100), ("cpus:2.5", 2560, 250)],
)
def test_weights_grow_with_cpus(cpus: str, shares: int, weight: int) -> None:
    bounds = bounds_of(Resources.parse(cpus), Limits())
    assert (bounds.shares, bounds.weight) == (shares, weight)


def test_weights_stay_in_the_range_of_the_kernel() -> None:
    bounds = Bounds(cpus=10**9)
    assert (bounds.shares, bounds.weight) == (262_144, 10_000)


def test_quotas_stay_in_the_range_of_the_kernel() -> None:
    for cpus, quota_us in ((1, 1_000), (MAX_AMOUNT, 2**43)):
        assert bounds_of(NOTHING, Limits(cpus=cpus)).quota_us == quota_us


def test_limits_become_bytes_microseconds_and_numbers() -> None:
    limits = Limits(cpus=1500, mem=64_000, pids=10)
    bounds = bounds_of(Resources.parse("cpus:1;mem:64MB"), limits)
    assert bounds == Bounds(64 * MIB, 0, 1000, 150_000, 10)


def test_memory_below_what_was_accounted_is_spared() -> None:
    bounds = bounds_of(Resources.parse("mem:32MB"), Limits(mem=64_000))
    assert (bounds.memory, bounds.spared) == (64 * MIB, 32 * MIB)


def test_the_smallest_quota_is_one_that_the_kernel_takes() -> None:
    assert bounds_of(Resources(), Limits(cpus=1)).quota_us == 1000


def test_all_tasks_are_bound_to_the_memory_of_the_agent() -> None:
    assert bounds_of_all(Resources.parse("cpus:2;mem:1GB")) == Bounds(1024 * MIB, 0, 2000)


def test_a_kill_at_the_own_limit_names_limit_and_peak() -> None:
    ending = ending_of(Measured(USED, 64 * MIB, 1, is_own_limit=True))
    message = "memory limit of 64 MiB exceeded; peak 64 MiB"
    assert ending.exceeded == Exceeded(Reason.MEMORY_LIMIT, message)
    assert ending.usage == USED


@pytest.mark.parametrize(
    ("limit", "own"), [(128 * MIB, "its own limit is 128 MiB; peak 64 MiB"), (0, "peak 64 MiB")]
)
def test_a_kill_below_the_own_limit_is_told_as_such(limit: int, own: str) -> None:
    exceeded = ending_of(Measured(USED, limit, 2)).exceeded
    assert exceeded is not None
    assert exceeded.message == (
        f"killed because the memory of all tasks or of the machine was short; {own}"
    )


@pytest.mark.parametrize(("times", "text"), [(1, "once"), (3, "3 times")])
def test_forks_that_failed_are_a_note(times: int, text: str) -> None:
    ending = ending_of(Measured(USED, pids_limit=10, refused=times))
    assert (ending.exceeded, ending.notes) == (None, (f"pids limit of 10 was met {text}",))


def test_sizes_have_at_most_one_decimal() -> None:
    assert [mib(size) for size in (0, MIB // 2, 64 * MIB, 10_000 * MIB + 1)] == [
        "0 MiB",
        "0.5 MiB",
        "64 MiB",
        "10000 MiB",
    ]
