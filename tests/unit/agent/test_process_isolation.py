"""Isolation by processes: options of the shim, what is refused, and whose fault failures are."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from croupier.agent.isolation import disk, process
from croupier.agent.isolation.bubblewrap import Bubblewrap, View
from croupier.agent.isolation.disk import FIRST_ID, ProjectQuotas
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.isolator import Launch
from croupier.agent.isolation.namespaces import LEAST_PIDS, Namespaces
from croupier.agent.isolation.process import (
    ROOT_KEPT,
    OwnCapabilities,
    ProcessIsolator,
    domain_option,
    write_filter,
)
from croupier.agent.shim.build import Shim
from croupier.agent.shim.run_file import StartError
from croupier.agent.shim.start import cause_on_agent
from croupier.agent.unix_user import UnixUser
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.isolation import Feature, Isolation, Limits
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Command, TaskInfo
from tests.harness.supervisor_fixture import launch_of

INFO = TaskInfo(TaskId("t1"), Command(("true",)), NOTHING)
LAUNCH = Launch("r-1", (FrameworkId("F1"), TaskId("t1")), INFO, "/s", ("true",), {})
DEFAULTS = Limits(pids=4096, files=65536)
OWN = UnixUser("task", 2_000_007, 2_000_007, (), is_own=True)


Make = Callable[..., ProcessIsolator]


def options(isolator: ProcessIsolator, launch: Launch = LAUNCH) -> tuple[str, ...]:
    return isolator.prepare(launch).options


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setattr(process, "landlock_version", lambda: 7)
    return partial(ProcessIsolator, DEFAULTS, tmp_path)


def test_a_task_gets_limits_and_restrictions(make: Make, tmp_path: Path) -> None:
    found = options(make())
    capabilities = OwnCapabilities().option(os.geteuid())
    assert found[:3] == ("limit=4:0:0", "limit=7:65536:65536", "umask=27")
    assert found[3:6] == (capabilities, "no-new-privs", "landlock=0:0:3")
    assert found[6:] == (f"seccomp={next(tmp_path.glob('seccomp-*'))}",)


def test_limits_come_from_the_task_first(make: Make) -> None:
    limits = Limits(pids=10, files=20, disk=1500)
    launch = replace(LAUNCH, info=replace(INFO, limits=limits), user=OWN)
    found = options(make(), launch)
    assert found[:4] == (
        "limit=4:0:0",
        "limit=7:20:20",
        f"limit=1:{1536 * 1024}:{1536 * 1024}",
        "limit=6:10:10",
    )
    shared = replace(launch, user=replace(OWN, is_own=False))
    assert not any(option.startswith("limit=6:") for option in options(make(), shared))


def test_what_a_runtime_does_inside_is_left_to_it(make: Make) -> None:
    launch = replace(LAUNCH, info=replace(INFO, isolation=Isolation(image="dir:/srv/root")))
    assert options(make(), launch) == ("limit=4:0:0", "limit=7:65536:65536", "umask=27")


def test_dealt_ports_are_named(make: Make) -> None:
    refusing = make(are_ports_refused=True)
    info = replace(INFO, resources=Resources.parse("ports:[31000-31001,31005-31005]"))
    found = options(refusing, replace(LAUNCH, info=info))
    assert "landlock=0:1:3:31000-31001,31005-31005" in found
    assert "landlock=0:1:3:" in options(refusing)
    in_image = replace(info, isolation=Isolation(image="dir:/srv/root"))
    inside = options(refusing, replace(LAUNCH, info=in_image))
    assert inside[3:] == ("no-new-privs", "landlock=0:1:0:31000-31001,31005-31005")
    info = replace(INFO, resources=Resources.parse("ports:[65530-70000,80000-80001]"))
    assert "landlock=0:1:3:65530-65535" in options(refusing, replace(LAUNCH, info=info))


def test_features_follow_from_the_setting(make: Make) -> None:
    assert make().features == {Feature.FILES}
    more = make(has_own_uids=True, are_ports_refused=True)
    assert more.features == {Feature.FILES, Feature.PIDS, Feature.PORTS}


def test_an_old_kernel_gets_what_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert [domain_option(version) for version in (0, 1, 2, 5, 6)] == [
        "",
        "",
        "landlock=2840:0:0",
        "landlock=2840:0:0",
        "landlock=0:0:3",
    ]
    monkeypatch.setattr(process, "landlock_version", lambda: 3)
    assert ProcessIsolator(DEFAULTS, tmp_path).features == {Feature.FILES}
    with pytest.raises(InvalidRequest, match=r"needs Landlock 4 .* it has 3"):
        ProcessIsolator(DEFAULTS, tmp_path, are_ports_refused=True)


def test_capabilities_of_an_agent_that_may_drop_them_or_not() -> None:
    root = OwnCapabilities("CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n")
    assert (root.option(0), root.option(7)) == (f"bounding={ROOT_KEPT:x}", "bounding=0")
    other = OwnCapabilities("CapEff:\t0000000000000000\nCapBnd:\t00000000000000ff\n")
    assert (other.option(0), other.option(7)) == ("bounding=ff", None)


def test_a_filter_is_written_once_and_older_ones_removed(tmp_path: Path) -> None:
    (tmp_path / "seccomp-0123456789abcdef").write_bytes(b"old")
    (tmp_path / ".seccomp-left").write_bytes(b"half")
    path = write_filter(tmp_path, has_ports=False)
    assert path is not None
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600
    assert write_filter(tmp_path, has_ports=True) != path


def test_refused_ports_need_the_level() -> None:
    IsolationFlags(undealt_ports="refuse")
    IsolationFlags(undealt_ports="refuse", isolation=("process", "cgroup"))
    for levels in (("none",), ("cgroup",)):
        with pytest.raises(InvalidRequest, match="needs --isolation process"):
            IsolationFlags(undealt_ports="refuse", isolation=levels)


# What the isolator of namespaces refuses; `integration/isolation` has real boxes.


def test_a_box_is_not_blamed_on_the_agent_if_its_task_leaves_no_room_for_it(tmp_path: Path) -> None:
    tool = Bubblewrap("/usr/bin/bwrap", by_root=True, shim=Shim(("/shim",)))
    features = frozenset({Feature.NAMESPACES})
    boxes = Namespaces(tool, View((), tmp_path), Limits(pids=100), features, are_all=False)
    launch = replace(launch_of("t1", "/bin/true"), sandbox=str(tmp_path))
    info = replace(launch.info, isolation=Isolation(namespaces=True))
    for pids in range(LEAST_PIDS + 2):
        wanted = replace(launch, info=replace(info, limits=Limits(pids=pids)))
        if 0 < pids < LEAST_PIDS:
            with pytest.raises(InvalidRequest, match="at least 3 pids"):
                boxes.prepare(wanted)
        else:
            assert "boxed" in boxes.prepare(wanted).options
    # Outside of a box, one process is enough.
    assert boxes.prepare(launch_of("t1", "/bin/true")).options == ()


# Project quotas without a file system that has them; `integration/isolation` has the others.


def test_a_pipe_in_a_sandbox_does_not_hold_up_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "stdout")
    marked: list[bool] = []
    monkeypatch.setattr(disk, "project_of", lambda fd: FIRST_ID)
    monkeypatch.setattr(
        disk, "_set_project", lambda fd, project, inherits=False: marked.append(inherits)
    )
    monkeypatch.setattr(ProjectQuotas, "_write", lambda quotas, project, blocks, files: None)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        ProjectQuotas.__new__(ProjectQuotas).limit(fd, 1 << 20)
    finally:
        os.close(fd)
    assert marked == [True, False]


# Which failed launches are blamed on the agent: only those that no task can cause at will.


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.EIO])
def test_a_bad_program_is_not_blamed_on_the_agent(number: int) -> None:
    # EIO: a program that was cut off before the name of its interpreter.
    assert cause_on_agent(StartError("exec", number)) == ""


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.ENFILE])
def test_a_machine_that_is_short_of_a_resource_is(number: int) -> None:
    assert cause_on_agent(StartError("exec", number))
    assert cause_on_agent(StartError("sandbox", errno.EIO))
    assert cause_on_agent(StartError("isolation", errno.EPERM))
