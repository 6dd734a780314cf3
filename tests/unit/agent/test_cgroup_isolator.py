"""The isolator over groups that exist in memory only."""

from __future__ import annotations

import errno
import os
import resource
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from croupier.agent.isolation.cgroup.bounds import MIB, Bounds, Measured
from croupier.agent.isolation.cgroup.isolator import CgroupIsolator
from croupier.agent.isolation.cgroup.v2 import V2Groups
from croupier.agent.isolation.isolator import Launch
from croupier.agent.unix_user import own_user
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.isolation import Feature, Features, Limits, Usage
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo

INFO = TaskInfo(TaskId("t1"), Command(("true",)), Resources.parse("cpus:1;mem:64MB"))
LAUNCH = Launch("r-1", (FrameworkId("F1"), TaskId("t1")), INFO, "/s", ("true",), {}, None, ("x",))


@dataclass(eq=False)
class MemoryGroups(V2Groups):
    """Groups by name; those with processes cannot be removed."""

    features: Features = frozenset({Feature.MEMORY})
    bounds: dict[str, Bounds] = field(default_factory=dict)
    populated: set[str] = field(default_factory=set)
    stubborn: set[str] = field(default_factory=set)
    fixed: set[str] = field(default_factory=set)
    is_gone: bool = False
    is_closed: bool = False

    def make(self, run: str, bounds: Bounds, *, is_fixed: bool = False) -> tuple[str, ...]:
        if self.is_gone:
            raise OSError(errno.ENODEV, "No such device")
        self.bounds[run] = bounds
        if is_fixed:
            self.fixed.add(run)
        return self.entry(run)

    def entry(self, run: str) -> tuple[str, ...]:
        return (f"group=/g/{run}/tasks",)

    def has(self, run: str) -> bool:
        return run in self.bounds

    def measure(self, run: str) -> Measured | None:
        return Measured(Usage(cpu_ms=len(self.bounds))) if run in self.bounds else None

    def is_empty(self, run: str) -> bool:
        return run not in self.populated

    def kill(self, run: str) -> None:
        if run in self.stubborn:
            raise OSError(errno.EBUSY, "processes do not end")
        self.populated.discard(run)

    def remove(self, run: str) -> None:
        if run in self.populated:
            raise OSError(errno.EBUSY, "Device or resource busy")
        self.bounds.pop(run, None)

    def names(self) -> set[str]:
        return set(self.bounds)

    def close(self) -> None:
        self.is_closed = True


def test_a_run_gets_a_group_with_its_bounds_and_the_shim_its_path() -> None:
    groups = MemoryGroups()
    isolator = CgroupIsolator(lambda: groups, Limits(pids=100))
    assert isolator.prepare(LAUNCH).options == ("x", "group=/g/r-1/tasks")
    assert groups.bounds["r-1"] == Bounds(64 * MIB, 0, 1000, 0, 100)


@pytest.mark.parametrize(
    ("uid", "options", "is_fixed"),
    [
        (None, ("no-new-privs",), False),
        (0, ("no-new-privs",), False),
        (os.geteuid(), ("no-new-privs",), False),
        (123_456, (), False),
        (123_456, ("no-new-privs",), True),
    ],
)
def test_only_groups_that_tasks_cannot_change_are_used_again(
    uid: int | None, options: tuple[str, ...], is_fixed: bool
) -> None:
    groups = MemoryGroups()
    user = None if uid is None else own_user(uid)
    launch = replace(LAUNCH, user=user, options=options)
    CgroupIsolator(lambda: groups, Limits()).prepare(launch)
    assert ("r-1" in groups.fixed) is is_fixed


def test_a_limit_of_processes_by_user_is_not_met_before_that_of_the_group() -> None:
    """The group tells that its limit was met; the other one cannot."""
    launch = replace(LAUNCH, options=(f"limit={resource.RLIMIT_NPROC}:100:100", "limit=7:9:9"))
    for feature, kept in ((Feature.PIDS, launch.options[1:]), (Feature.MEMORY, launch.options)):
        groups = MemoryGroups(frozenset({feature}))
        isolator = CgroupIsolator(partial(_same, groups), Limits(pids=100))
        assert isolator.prepare(launch).options == (*kept, "group=/g/r-1/tasks")


def _same(groups: MemoryGroups) -> MemoryGroups:
    return groups


def test_quotas_hold_tasks_to_their_cpus() -> None:
    groups = MemoryGroups()
    CgroupIsolator(lambda: groups, Limits(), has_quota=True).prepare(LAUNCH)
    assert groups.bounds["r-1"].quota_us == 100_000


def test_groups_that_another_has_removed_are_made_again() -> None:
    opened = [MemoryGroups(), MemoryGroups()]
    waiting = iter(opened)
    isolator = CgroupIsolator(lambda: next(waiting), Limits())
    opened[0].is_gone = True
    isolator.prepare(LAUNCH)
    assert opened[0].is_closed
    assert opened[1].has("r-1")


def test_a_group_whose_last_process_is_about_to_end_is_removed_later() -> None:
    groups = MemoryGroups()
    isolator = CgroupIsolator(lambda: groups, Limits())
    isolator.prepare(LAUNCH)
    isolator.prepare(replace(LAUNCH, run="r-2"))
    groups.populated = {"r-1"}
    isolator.forget("r-1")
    assert groups.names() == {"r-1", "r-2"}
    groups.populated = set()
    isolator.forget("r-2")
    assert groups.names() == set()


def test_runs_in_the_place_of_an_earlier_agent_are_measured_and_removed_there() -> None:
    groups, earlier = MemoryGroups(), MemoryGroups()
    isolator = CgroupIsolator(lambda: groups, Limits(), earlier=[earlier])
    earlier.make("old-1", Bounds())
    isolator.prepare(LAUNCH)
    assert isolator.usage("old-1") is not None
    assert isolator.usage("r-1") is not None
    assert isolator.usage("r-9") is None
    isolator.forget("old-1")
    assert (earlier.names(), groups.names()) == (set(), {"r-1"})
    isolator.close()
    assert earlier.is_closed
    assert groups.is_closed


def test_clean_kills_what_is_left_of_unknown_runs_and_goes_on_after_an_error() -> None:
    groups = MemoryGroups()
    isolator = CgroupIsolator(lambda: groups, Limits())
    for run in ("a", "b", "c", "known"):
        groups.make(run, Bounds())
        groups.populated.add(run)
    groups.stubborn = {"b"}
    with pytest.raises(OSError, match="do not end"):
        isolator.clean({"known"})
    assert groups.names() == {"b", "known"}
    assert groups.populated == {"b", "known"}
