from __future__ import annotations

import pytest

from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.levels import format_levels, parse_levels
from croupier.agent.isolation.limits import limits_of
from croupier.model.errors import InvalidRequest
from croupier.model.ids import TaskId
from croupier.model.isolation import NO_LIMITS, Limits, format_limits, parse_limits
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("auto", ("auto",)),
        ("none", ("none",)),
        ("cgroup", ("cgroup",)),
        ("process, cgroup", ("process", "cgroup")),
        ("container,namespaces", ("container", "namespaces")),
    ],
)
def test_levels_are_read_and_written(text: str, levels: tuple[str, ...]) -> None:
    assert parse_levels(text) == levels
    assert parse_levels(format_levels(levels)) == levels


@pytest.mark.parametrize("text", ["", "cgroups", "auto,process", "none,cgroup", "process,"])
def test_unknown_levels_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="give auto, none, or some of process,cgroup,"):
        parse_levels(text)


def test_a_level_is_given_once() -> None:
    with pytest.raises(InvalidRequest, match="has a word twice"):
        parse_levels("process,process")


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", NO_LIMITS),
        ("pids:4096;files:65536", Limits(pids=4096, files=65536)),
        ("cpus:1.5;mem:1GB;disk:64MB", Limits(cpus=1500, mem=1_024_000, disk=64_000)),
    ],
)
def test_limits_are_read_and_written(text: str, limits: Limits) -> None:
    assert parse_limits(text) == limits
    assert parse_limits(format_limits(limits)) == limits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus:1", "there is no limit of gpus; give some of cpus, mem, disk, pids, files"),
        ("ports:[1-2]", "there is no limit of ports"),
        ("pids:0", "the limit of pids must be above 0, not 0"),
        ("pids:1.5", "the limit of pids is a whole number"),
        ("pids:5000000", "the limit of pids is out of range"),
        ("files:many", "'many' is not an amount"),
        ("pids", "NAME:AMOUNT"),
    ],
)
def test_false_limits_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_limits(text)


def test_defaults_bound_processes_and_files() -> None:
    flags = IsolationFlags()
    assert format_limits(flags.default_limits) == "pids:4096;files:65536"
    assert (flags.isolation, flags.cpu_quota) == (("auto",), "off")


@pytest.mark.parametrize(
    ("resources", "own", "expected"),
    [
        ("", NO_LIMITS, Limits(mem=32_000, pids=100)),
        ("cpus:1;mem:64MB;disk:1GB", NO_LIMITS, Limits(mem=64_000, disk=1_024_000, pids=100)),
        ("mem:1MB", NO_LIMITS, Limits(mem=4_000, pids=100)),
        ("cpus:1;mem:64MB", Limits(2000, 128_000, 5, 6, 7), Limits(2000, 128_000, 5, 6, 7)),
    ],
)
def test_own_limits_come_before_resources_and_defaults(
    resources: str, own: Limits, expected: Limits
) -> None:
    info = TaskInfo(TaskId("t"), Command(("true",)), Resources.parse(resources), limits=own)
    assert limits_of(info, Limits(mem=32_000, pids=100)) == expected


def test_with_quotas_a_task_is_held_to_its_cpus() -> None:
    info = TaskInfo(TaskId("t"), Command(("true",)), Resources.parse("cpus:1.5"))
    assert limits_of(info, NO_LIMITS, has_quota=True) == Limits(cpus=1500)
