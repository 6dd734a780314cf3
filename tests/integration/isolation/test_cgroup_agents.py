"""Tasks and agents in the control groups of this machine. `cgroup2/` has those of a guest."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from croupier.agent.isolation.cgroup.bounds import MIB
from croupier.agent.isolation.cgroup.directory import name_for
from croupier.agent.isolation.cgroup.isolator import Groups, open_groups, own_groups, place_for
from croupier.agent.isolation.cgroup.places import Place
from croupier.agent.recover import clean_up
from croupier.agent.shim.build import Shim
from croupier.model.errors import Unavailable
from croupier.model.isolation import NO_FEATURES, Feature, Limits
from croupier.model.task import Reason, TaskState
from tests.harness import limited_tasks as tasks
from tests.harness.agent_process import AgentProcess
from tests.harness.eventually import eventually
from tests.harness.limited_tasks import NO_BOUNDS, Limited, left_groups
from tests.harness.scripted_master import ScriptedMaster, shell


@pytest.fixture(scope="module")
def own_groups_work() -> None:
    try:
        open_groups(
            place_for(own_groups(), f"croupier-test-probe-{os.getpid()}"), tasks.NO_BOUNDS
        ).close()
    except (Unavailable, OSError) as reason:
        pytest.skip(f"this machine lets no control groups be made: {reason}")


@pytest.mark.usefixtures("own_groups_work")
@pytest.mark.parametrize("line", [tasks.AT_ONCE, tasks.SLOWLY, tasks.IN_MANY])
async def test_memory(limited: Limited, line: str) -> None:
    await tasks.check_memory(limited, line)


@pytest.mark.usefixtures("own_groups_work")
@pytest.mark.parametrize("check", tasks.CHECKS)
async def test_limits(limited: Limited, check: Callable[[Limited], Awaitable[None]]) -> None:
    await check(limited)


@pytest.mark.usefixtures("own_groups_work")
async def test_adoption(tmp_path: Path, shim: Shim) -> None:
    await tasks.check_adoption(tmp_path, shim)


RESOURCES = "cpus:4;mem:512MB;disk:1GB"
RUNNING, FAILED, FINISHED = TaskState.RUNNING, TaskState.FAILED, TaskState.FINISHED
# Makes every control group read-only in a mount namespace of the agent's own.
_REMOUNT = """
for each in $(findmnt -rno TARGET -t cgroup,cgroup2); do mount -o remount,bind,ro "$each"; done
exec "$@"
"""
READ_ONLY = ("unshare", "--mount", "sh", "-ec", _REMOUNT, "sh")
NAME = f"croupier-test-agents-{os.getpid()}"


@pytest.fixture(scope="module")
def place() -> Place:
    """Return where this machine lets groups be made."""
    try:
        place = place_for(own_groups(), NAME)
        open_groups(place, NO_BOUNDS).close()
    except (Unavailable, OSError) as reason:
        pytest.skip(f"this machine lets no control groups be made: {reason}")
    return place


Start = Callable[[str], AgentProcess]


@pytest.fixture
async def prepared(master: ScriptedMaster, tmp_path: Path, place: Place) -> AsyncIterator[Start]:
    """Prepare an agent in a process of its own; nothing of it is left after the test."""
    agents: list[AgentProcess] = []

    def prepare(isolation: str) -> AgentProcess:
        work, log = tmp_path / "work", tmp_path / "agent.log"
        agent = AgentProcess(master.address, work, log, RESOURCES, isolation=isolation)
        agents.append(agent)
        return agent

    yield prepare
    for agent in agents:
        agent.end()
    groups = left_groups(tmp_path / "work")
    await clean_up(tmp_path / "work")
    assert not any(path.exists() for path in groups)


async def test_limits_and_usage_survive_kill_9_of_the_agent(
    prepared: Start, master: ScriptedMaster, tmp_path: Path
) -> None:
    agent, gate = prepared("cgroup"), tmp_path / "gate"
    agent.start()
    features = (await master.agent()).register
    assert features is not None
    assert {"memory", "pids", "cpu-weight", "usage"} <= set(features.isolation)
    waits = f"while ! test -e {gate}; do sleep 0.05; done"
    master.launch(
        shell("hog", f"{waits}; {tasks.AT_ONCE}", tasks.MEM),
        shell("bomb", f"{waits}; for i in $(seq 40); do sleep 60 & done", limits=Limits(pids=10)),
        *(shell(f"t{n}", f"{waits}; exit 5", tasks.MEM) for n in range(8)),
    )
    names = ["hog", "bomb", *(f"t{n}" for n in range(8))]
    for name in names:
        await master.state(name, RUNNING)
    agent.signal(signal.SIGKILL)
    await agent.ended()
    gate.touch()
    agent.start()
    hog = await master.state("hog", FAILED)
    assert hog.reason == Reason.MEMORY_LIMIT
    assert hog.message.startswith("memory limit of 32 MiB exceeded; peak 32 MiB")
    assert 30 * MIB < hog.usage.memory_peak_bytes < 33 * MIB
    bomb = await master.state("bomb", FAILED)
    assert "pids limit of 10 was met" in bomb.message
    for n in range(8):
        end = await master.state(f"t{n}", FAILED)
        assert (end.exit_code, end.reason) == (5, Reason.COMMAND_EXECUTOR_FAILED)
        assert 0 < end.usage.memory_peak_bytes < 32 * MIB
    await eventually(
        lambda: not [run for path in left_groups(agent.work_dir) for run in path.glob("*-*/")],
        what="the groups of ended tasks are removed",
    )


async def test_an_agent_that_ends_its_tasks_leaves_no_groups(
    prepared: Start, master: ScriptedMaster
) -> None:
    """Not even those of ends that the master has not acknowledged."""
    agent = prepared("cgroup")
    master.acknowledges = False
    agent.start("--on-stop", "end")
    await master.agent()
    master.launch(shell("t1", "exit 5", tasks.MEM), shell("t2", "sleep 60", tasks.MEM))
    await master.state("t1", FAILED)
    await master.state("t2", RUNNING)
    assert left_groups(agent.work_dir)
    agent.signal(signal.SIGTERM)
    assert await agent.ended() == 0
    assert not left_groups(agent.work_dir)


async def test_groups_that_no_record_names_are_emptied_and_removed(
    prepared: Start, master: ScriptedMaster
) -> None:
    """The agent before was killed between making a group and recording nothing of it."""
    agent = prepared("cgroup")
    agent.start()
    await master.agent()
    agent.signal(signal.SIGKILL)
    await agent.ended()
    left = left_groups(agent.work_dir)
    assert left
    for path in left:
        (path / "0-1").mkdir()
    with sleeping_in(left[0] / "0-1") as sleeper:
        agent.start()
        await master.agent(2)
        assert sleeper.wait(timeout=10) == -signal.SIGKILL
    assert not any((path / "0-1").exists() for path in left)


async def test_a_read_only_hierarchy_is_told_and_auto_goes_on(
    prepared: Start, master: ScriptedMaster
) -> None:
    agent = prepared("cgroup")
    agent.prefix = READ_ONLY
    agent.start()
    assert await agent.ended() != 0
    assert "--isolation cgroup: " in agent.log.read_text()
    assert "is mounted read-only" in agent.log.read_text()
    agent = prepared("auto")
    agent.prefix = READ_ONLY
    agent.start()
    register = (await master.agent()).register
    assert register is not None
    assert "memory" not in register.isolation
    await eventually(lambda: '"isolation_reduced"' in agent.log.read_text())
    assert agent.log.read_text().count('"isolation_reduced"') == 1


def test_a_group_with_processes_is_not_ours(place: Place, opened: list[Groups]) -> None:
    path = Path(next(iter(place.directories.values())))
    path.mkdir()
    try:
        with sleeping_in(path) as sleeper:
            with pytest.raises(Unavailable, match="has processes of its own"):
                open_groups(Place(place.version, {"pids": str(path)}), NO_BOUNDS)
            assert sleeper.poll() is None
    finally:
        path.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a group away")
def test_a_group_of_another_user_is_not_ours(place: Place) -> None:
    path = Path(next(iter(place.directories.values())))
    path.mkdir()
    try:
        os.chown(path, 65534, 65534)
        with pytest.raises(Unavailable, match="belongs to another user"):
            open_groups(Place(place.version, {"pids": str(path)}), NO_BOUNDS)
    finally:
        path.rmdir()


@pytest.fixture
def opened() -> Iterator[list[Groups]]:
    opened: list[Groups] = []
    yield opened
    for groups in opened:
        groups.close()


@pytest.mark.parametrize(
    ("controllers", "features"),
    [
        (["memory"], {Feature.MEMORY}),
        (["pids"], {Feature.PIDS}),
        (["cpu"], {Feature.CPU_WEIGHT, Feature.CPU_QUOTA}),
        (["cpu", "cpuacct"], {Feature.CPU_WEIGHT, Feature.CPU_QUOTA, Feature.USAGE}),
    ],
)
def test_missing_controllers_are_missing_features(
    place: Place, opened: list[Groups], controllers: list[str], features: set[Feature]
) -> None:
    if place.version != 1:
        pytest.skip("version 2 has all controllers in one hierarchy")
    some = {each: place.directories[each] for each in controllers}
    groups = open_groups(Place(1, some), NO_BOUNDS)
    opened.append(groups)
    assert groups.features - {Feature.USAGE} == features - {Feature.USAGE}
    assert groups.features >= features or groups.features == NO_FEATURES
    assert len(groups.make("r-1", tasks.SMALL)) == len(set(some.values()))
    measured = groups.measure("r-1")
    assert measured is not None
    assert (measured.killed, measured.refused) == (0, 0)
    assert groups.is_empty("r-1")
    groups.kill("r-1")
    groups.remove("r-1")
    # As after a reboot.
    assert groups.measure("r-1") is None
    assert groups.is_empty("r-1")
    groups.kill("r-1")
    groups.remove("r-1")


def test_work_dirs_have_groups_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert name_for(tmp_path / "a") == name_for(tmp_path / "link")
    assert name_for(tmp_path / "a") != name_for(tmp_path / "b")


class sleeping_in:  # noqa: N801 - a context
    """A process in a group, killed at the end."""

    def __init__(self, group: Path) -> None:
        file = group / "tasks"
        enter = file if file.exists() else group / "cgroup.procs"
        line = f"echo 0 >{enter}; echo; exec sleep 60"
        self._process = subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE)

    def __enter__(self) -> subprocess.Popen[bytes]:
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self._process

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(timeout=10)
        assert self._process.stdout is not None
        self._process.stdout.close()
