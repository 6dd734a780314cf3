"""Commands beside tasks at each level: they are where their tasks are, with no more rights."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL, SIGSEGV

import pytest

from croupier.agent.core.events import Exited
from croupier.agent.exec import task_execs
from croupier.agent.exec.inside import children
from croupier.agent.exec.task_exec import TaskExec
from croupier.agent.exec.task_execs import end_commands
from croupier.agent.isolation.assembly import assemble
from croupier.agent.isolation.cgroup.isolator import remove_groups
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.isolator import Setting
from croupier.agent.shim.build import Shim
from croupier.agent.shim.orphans import end_orphans
from croupier.agent.shim.run_file import read_path
from croupier.model.errors import InvalidRequest, NotFound, Unavailable
from croupier.model.isolation import Limits
from croupier.model.resources import NOTHING
from croupier.v1.exec_pb2 import WindowSize
from tests.harness.boxed_tasks import IN_NAMESPACES, Boxes
from tests.harness.debian import NoProgram, program, unavailable
from tests.harness.escape_tries import LEVELS
from tests.harness.eventually import eventually
from tests.harness.exec_fixture import Execs, collect
from tests.harness.exec_levels import FACTS, TASK, ExecLevel
from tests.harness.exec_process import OWN
from tests.harness.processes import descriptors, running_as
from tests.harness.supervisor_fixture import PATH, TaskRunner, key, launch_of

IS_ROOT = os.geteuid() == 0


Check = Callable[[ExecLevel], Awaitable[None]]


@pytest.fixture(params=LEVELS)
async def level(
    request: pytest.FixtureRequest, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ExecLevel]:
    if request.param == "namespaces":
        monkeypatch.setenv("PATH", str(program("bwrap").parent), prepend=os.pathsep)
    # Whatever waits in vain for a command to end does not end within any test.
    monkeypatch.setattr(task_execs, "END_S", 1000.0)
    work = tmp_path / "work"
    work.mkdir(mode=0o711)
    try:
        level = ExecLevel(request.param, work, shim)
    except InvalidRequest as reason:
        unavailable(NoProgram(str(reason)))
    yield level
    await level.close()


def stubborn(seconds: int) -> str:
    """Return a shell line that ignores signals, with a daemon in a session of its own."""
    words = f"trap '' TERM HUP INT; setsid sh -c 'sleep {seconds}; sleep {seconds}' & echo on"
    return f"{words}; sleep {seconds}; sleep {seconds}"


async def begun(level: ExecLevel, seconds: int) -> TaskExec:
    """Start a stubborn command; return it once both of its programs run."""
    one = await level.execs.start(level.task, "/bin/sh", "-c", stubborn(seconds))
    assert (await anext(one.output()))[1] == b"on\n"
    await eventually(lambda: len(running_as(f"sleep {seconds}")) == 2, 20)
    return one


async def a_command_sees_of_itself_what_its_task_sees(level: ExecLevel) -> None:
    told, seen = await level.facts()
    assert seen == told
    assert len(told) > 60


async def everything_of_a_command_ends_with_close_and_with_its_program(level: ExecLevel) -> None:
    one = await begun(level, 61_111)
    await one.close()
    assert not running_as("sleep 61111")
    assert (await one.wait()).signal == SIGKILL
    assert len(level.execs.execs) == 0
    await one.close()

    end, output, _ = await level.execs.run(
        level.task, "/bin/sh", "-c", "setsid sleep 61112 & sleep 0.1; echo on; exit 7"
    )
    assert (end.exit_code, output) == (7, "on\n")
    assert not running_as("sleep 61112")
    end, _, _ = await level.execs.run(level.task, "/bin/sh", "-c", "kill -SEGV $$")
    assert (end.HasField("exit_code"), end.signal) == (False, SIGSEGV)


async def a_command_whose_shim_is_killed_leaves_nothing(level: ExecLevel) -> None:
    one = await begun(level, 61_113)
    os.kill(one._shim.shim, SIGKILL)
    end = await one.wait()
    assert (end.signal, end.message) == (SIGKILL, "its shim was killed")
    await eventually(lambda: not running_as("sleep 61113"))
    assert not level.runner._of(level.task, Exited)


async def a_command_ends_with_its_task_whose_end_is_told_at_once(level: ExecLevel) -> None:
    one = await begun(level, 61_114)
    level.runner.supervisor.signal(key(level.task), SIGKILL)
    end = await level.runner.ended(level.task)
    assert isinstance(end, Exited)
    assert end.signal == SIGKILL
    assert not running_as("sleep 61114")
    told = await one.wait()
    assert told.signal == SIGKILL
    # In a box the kernel may kill it with its task.
    is_boxed = level.level in ("namespaces", "container")
    assert is_boxed or told.message == "its task has ended"
    await one.close()
    with pytest.raises(NotFound, match=f"task {level.task} has ended"):
        await level.execs.start(level.task, "true")


async def variables_of_the_task_are_found(level: ExecLevel) -> None:
    running = level.runner.supervisor.running(key(level.task))
    assert running is not None
    # Secrets are known from there only.
    assert task_execs._variables(running.pid, ["NAME", "NO_SUCH"]) == {"NAME": "a b"}


async def programs_of_the_task_are_found(level: ExecLevel) -> None:
    end, _, _ = await level.execs.run(level.task, "no-such-program")
    assert end.exit_code == 127
    denied = level.runner.home(level.task) / "denied"
    denied.write_text("no program")
    end, _, _ = await level.execs.run(level.task, "./denied")
    assert end.exit_code == 126
    own = level.runner.home(level.task) / "own"
    own.write_text('#!/bin/sh\necho "$1" >/dev/stdout; cat >/dev/stderr\n')
    own.chmod(0o755)
    end, output, errors = await level.execs.run(level.task, "./own", "a b", data=b"given")
    assert (end.exit_code, output, errors) == (0, "a b\n", "given")


async def a_program_of_the_task_finds_nothing_of_the_machine(level: ExecLevel) -> None:
    if level.level not in ("namespaces", "container"):
        return
    # The interpreter would be the shim, whose file is of the machine.
    script = level.runner.home(level.task) / "script"
    script.write_text("#!/proc/self/exe\n")
    script.chmod(0o755)
    end, output, _ = await level.execs.run(level.task, "./script")
    assert (end.exit_code, output) in ((126, ""), (2, "croupier-shim 2\n"))
    if IS_ROOT:
        assert end.exit_code == 126
    one = await level.execs.start(level.task, "sleep", "60")
    (inner,) = children(one._shim.shim)
    seen = await level.execs.shell(
        level.task, "ls -l /proc/*/exe /proc/*/cwd 2>/dev/null | grep -c memfd; exit 0"
    )
    assert seen == "0\n"
    if IS_ROOT:
        null = os.devnull
        given = descriptors(inner)
        assert given.pop(3).startswith("pipe:")
        assert given == {0: null, 1: null, 2: null, 4: null}
    await one.close()


async def a_command_can_have_a_terminal(level: ExecLevel) -> None:
    line = "stty size; echo on >/dev/tty; read x; echo $x"
    one = await level.execs.start(
        level.task, "/bin/sh", "-c", line, has_input=True, window=WindowSize(rows=24, columns=80)
    )
    await one.streams.write(b"typed\n")
    output, _ = await collect(one)
    assert sorted(output.split()) == ["24", "80", "on", "typed", "typed"]
    await one.close()


@pytest.mark.parametrize(
    "checks",
    [
        (
            a_command_sees_of_itself_what_its_task_sees,
            variables_of_the_task_are_found,
            programs_of_the_task_are_found,
            a_program_of_the_task_finds_nothing_of_the_machine,
            a_command_can_have_a_terminal,
        ),
        (
            everything_of_a_command_ends_with_close_and_with_its_program,
            a_command_whose_shim_is_killed_leaves_nothing,
            a_command_ends_with_its_task_whose_end_is_told_at_once,
        ),
    ],
    ids=["rights", "ends"],
)
async def test_commands_beside_a_task(level: ExecLevel, checks: tuple[Check, ...]) -> None:
    await level.start(OWN if IS_ROOT else None)
    for check in checks:
        await check(level)


@pytest.mark.parametrize(
    ("name", "is_shim_killed"), [("cgroup", True), ("namespaces", False), ("container", False)]
)
async def test_commands_end_with_an_agent_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, is_shim_killed: bool
) -> None:
    if name == "namespaces":
        monkeypatch.setenv("PATH", str(program("bwrap").parent), prepend=os.pathsep)
    work = tmp_path / "work"
    work.mkdir(mode=0o711)
    command = [sys.executable, "-m", "tests.harness.exec_process", str(work), name]
    agent = await asyncio.create_subprocess_exec(
        *command, stubborn(61_115), stdout=asyncio.subprocess.PIPE
    )
    assert agent.stdout is not None
    lines = [line async for line in until_number(agent.stdout)]
    assert lines, "the agent and its command have started"
    await eventually(lambda: len(running_as("sleep 61115")) == 2, 20)
    agent.kill()
    if is_shim_killed:
        os.kill(int(lines[-1]), SIGKILL)
    await agent.wait()
    try:
        if not is_shim_killed:
            await eventually(lambda: not running_as("sleep 61115"), 20)
        end_commands(work / "execs")
        await eventually(lambda: not running_as("sleep 61115"))
        assert not list((work / "execs").iterdir())
        task = read_path(work / "runs" / "t1").task
        assert task is not None
        assert task.is_alive(), "its task runs on"
    finally:
        end_orphans(work / "runs", ())
        remove_groups(work)


async def until_number(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines up to one with a number only."""
    async with asyncio.timeout(60):
        async for line in stream:
            yield line
            if line.strip().isdigit():
                return


@pytest.mark.skipif(not IS_ROOT, reason="an agent that is not root uses this way anyway")
async def test_a_command_enters_a_box_in_a_user_namespace(tmp_path: Path, shim: Shim) -> None:
    boxes = Boxes(tmp_path, shim, by_root=False)
    execs = Execs(boxes.runner)
    launch = launch_of("t1", "/bin/sh", "-c", TASK, user=boxes.user, environment=PATH)
    execs.task(replace(launch, info=replace(launch.info, isolation=IN_NAMESPACES)))
    told = boxes.runner.home("t1") / "told"
    await eventually(told.exists, 20)
    seen = await execs.shell("t1", f"exec 2>&1; {FACTS}")
    assert seen == told.read_text()
    end, _, _ = await execs.run("t1", "/bin/sh", "-c", "setsid sleep 61116 & exit 7")
    assert end.exit_code == 7
    assert not running_as("sleep 61116")
    await execs.close()


async def test_a_command_has_no_more_rights_than_a_task_of_an_earlier_life(
    tmp_path: Path, shim: Shim
) -> None:
    strict = IsolationFlags(isolation=("process",), default_limits=Limits(files=100))
    first = Execs(
        TaskRunner(tmp_path, shim, isolation=assemble(Setting(strict, NOTHING, tmp_path, shim)))
    )
    first.task(launch_of("t1", "sleep", "600"))
    await first.runner.started("t1")
    first.runner.supervisor.close()

    raised = replace(strict, default_limits=Limits(files=1000))
    same = Execs(
        TaskRunner(tmp_path, shim, isolation=assemble(Setting(raised, NOTHING, tmp_path, shim)))
    )
    same.launches.of = first.launches.of
    same.runner.adopt("t1")
    assert await same.shell("t1", "ulimit -Hn") == "100\n"
    await same.execs.close()
    same.runner.supervisor.close()

    bare = Execs(TaskRunner(tmp_path, shim))
    bare.launches.of = first.launches.of
    bare.runner.adopt("t1")
    with pytest.raises(Unavailable, match="would not have the restrictions of the task"):
        await bare.start("t1", "true")
    await bare.close()
