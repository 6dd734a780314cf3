"""Commands beside tasks at each level: they are where their tasks are, with no more rights."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from signal import SIGKILL, SIGSEGV

import pytest

from croupier.agent.core.events import Exited
from croupier.agent.exec import task_execs
from croupier.agent.exec.command import Window
from croupier.agent.exec.task_exec import TaskExec
from croupier.agent.shim.build import Shim, prepare_shim
from croupier.agent.unix_user import UnixUser
from croupier.model.errors import InvalidRequest
from tests.harness.boxed_tasks import passable
from tests.harness.debian import NoProgram, program, unavailable
from tests.harness.escape_tries import LEVELS
from tests.harness.eventually import eventually
from tests.harness.exec_fixture import collect
from tests.harness.exec_levels import ExecLevel
from tests.harness.processes import running_as
from tests.harness.supervisor_fixture import key

IS_ROOT = os.geteuid() == 0
Check = Callable[[ExecLevel], Awaitable[None]]
OWN = UnixUser("task", 1_999_992, 1_999_992, (), is_own=True)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    return prepare_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(params=LEVELS)
async def level(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    shim: Shim,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[ExecLevel]:
    if request.param == "namespaces":
        monkeypatch.setenv("PATH", str(program("bwrap").parent), prepend=os.pathsep)
    with passable(tmp_path):
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

    end, output, _ = await level.execs.run(
        level.task, "/bin/sh", "-c", "setsid sleep 61112 & sleep 0.1; echo on; exit 7"
    )
    assert (end.exit_code, output) == (7, "on\n")
    assert not running_as("sleep 61112")
    end, _, _ = await level.execs.run(level.task, "/bin/sh", "-c", "kill -SEGV $$")
    assert (end.exit_code, end.signal) == (None, SIGSEGV)


async def a_command_whose_shim_is_killed_leaves_nothing(level: ExecLevel) -> None:
    one = await begun(level, 61_113)
    os.kill(one._shim.shim, SIGKILL)
    assert (await one.wait()).signal == SIGKILL
    await eventually(lambda: not running_as("sleep 61113"))
    assert not level.runner._of(level.task, Exited)


async def a_command_ends_with_its_task_whose_end_is_told_at_once(level: ExecLevel) -> None:
    one = await begun(level, 61_114)
    began = time.monotonic()
    level.runner.supervisor.signal(key(level.task), SIGKILL)
    end = await level.runner.ended(level.task)
    assert isinstance(end, Exited)
    assert end.signal == SIGKILL
    assert time.monotonic() - began < task_execs.END_S, "nothing was waited for in vain"
    assert not running_as("sleep 61114")
    assert (await one.wait()).signal == SIGKILL
    await one.close()


async def programs_of_the_task_are_found(
    level: ExecLevel,
) -> None:
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


async def a_command_can_have_a_terminal(level: ExecLevel) -> None:
    line = "stty size; echo on >/dev/tty; read x; echo $x"
    one = await level.execs.start(
        level.task, "/bin/sh", "-c", line, has_input=True, window=Window(24, 80)
    )
    await one.write(b"typed\n")
    output, _ = await collect(one)
    assert sorted(output.split()) == ["24", "80", "on", "typed", "typed"]
    await one.close()


@pytest.mark.parametrize(
    "checks",
    [
        (
            a_command_sees_of_itself_what_its_task_sees,
            programs_of_the_task_are_found,
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
