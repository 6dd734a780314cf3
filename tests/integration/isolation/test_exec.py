"""Commands beside tasks: their streams, their ends, and what ends them."""

from __future__ import annotations

import asyncio
import select
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from croupier.agent.exec import task_execs
from croupier.agent.exec.inside import find_inside
from croupier.agent.exec.streams import Stream, Streams, check_command, check_window
from croupier.agent.exec.task_exec import TaskExec
from croupier.agent.shim.build import Shim
from croupier.model.errors import InvalidRequest, NotFound, ProtocolViolation, Unavailable
from croupier.v1.exec_pb2 import ExecCommand, WindowSize
from tests.harness.eventually import eventually
from tests.harness.exec_fixture import Execs, collect
from tests.harness.supervisor_fixture import TaskRunner, key, launch_of

WINDOW = WindowSize(rows=24, columns=80)


@pytest.fixture
async def execs(tmp_path: Path, shim: Shim) -> AsyncIterator[Execs]:
    execs = Execs(TaskRunner(tmp_path, shim))
    execs.task(launch_of("t1", "/bin/sh", "-c", "sleep 60; exit 3"))
    await execs.runner.started("t1")
    yield execs
    await execs.close()


async def test_streams_and_exit_codes_are_those_of_the_program(execs: Execs) -> None:
    line = "cat; echo problem >&2; echo again >/dev/stdout; exit 9"
    end, output, errors = await execs.run("t1", "/bin/sh", "-c", line, data=b"given\n")
    assert (output, errors) == ("given\nagain\n", "problem\n")
    assert (end.exit_code, end.HasField("signal"), end.message) == (9, False, "")
    end, _, _ = await execs.run("t1", "/bin/sh", "-c", "kill -SEGV $$")
    assert (end.HasField("exit_code"), end.signal) == (False, signal.SIGSEGV)
    end, output, _ = await execs.run("t1", "cat")
    assert (end.exit_code, output) == (0, ""), "its input is empty"


async def test_programs_that_cannot_run(execs: Execs) -> None:
    end, _, _ = await execs.run("t1", "no-such-program")
    assert end.exit_code == 127
    assert end.message == (
        "cannot run 'no-such-program': no such program, or its interpreter is missing"
    )
    end, _, _ = await execs.run("t1", "/etc/passwd")
    assert end.exit_code == 126
    assert end.message == "cannot run '/etc/passwd': permission denied: it is not executable"


async def test_a_command_has_the_directory_the_variables_and_no_further_descriptor(
    execs: Execs,
) -> None:
    home = str(execs.runner.home("t1"))
    assert await execs.shell("t1", "pwd; ls /proc/self/fd | tr '\\n' ' '") == f"{home}\n0 1 2 3 "
    variables = (await execs.shell("t1", "env")).splitlines()
    assert f"CROUPIER_TASK_RUN={execs.runner.runs / 't1'}" in variables
    assert "PATH=/usr/local/bin:/usr/bin:/bin" in variables
    assert not [each for each in variables if each.startswith("T.")]


async def test_output_waits_for_its_reader_and_input_for_the_program(execs: Execs) -> None:
    one = await execs.start("t1", "/bin/sh", "-c", "head -c 9000000 /dev/zero; echo >done")
    chunk = await anext(one.output())
    assert chunk[0] is Stream.OUTPUT
    assert 0 < len(chunk[1]) <= 65536
    assert not (execs.runner.home("t1") / "done").exists()
    output, _ = await collect(one)
    assert len(output) + len(chunk[1]) == 9_000_000
    await one.close()

    two = await execs.start("t1", "sleep", "60", has_input=True)
    writing = asyncio.create_task(two.streams.write(b"x" * 1_000_000))
    await asyncio.wait([writing], timeout=0.2)
    assert not writing.done()
    await two.close()
    await writing


def has_more(streams: Streams) -> bool:
    """Return whether there is output to read, or all of it is closed."""
    outputs = list(streams._outputs)
    return not outputs or bool(select.select(outputs, (), (), 0)[0])


@pytest.mark.parametrize("window", [None, WINDOW])
async def test_output_ends_although_the_task_has_taken_an_end_of_it(
    tmp_path: Path, window: WindowSize | None
) -> None:
    with (tmp_path / "null").open("w+") as null:
        streams = Streams(ExecCommand(argv=["true"], terminal=window), null.fileno(), None)
        taker = await asyncio.create_subprocess_exec("yes", stdout=streams.given[1])
        streams.release()
        found = await streams.read()
        streams.end()
        async with asyncio.timeout(30):
            while found is not None:
                # The caller is slower than the task: there is always more to read.
                await eventually(partial(has_more, streams))
                found = await streams.read()
        streams.close()
        # It can write no more: the pipe is closed, or the terminal has hung up.
        assert await taker.wait()


async def test_input_is_dropped_once_the_program_has_closed_it(execs: Execs) -> None:
    one = await execs.start(
        "t1", "/bin/sh", "-c", "exec <&-; echo closed; sleep 60", has_input=True
    )
    assert (await anext(one.output()))[1] == b"closed\n"
    async with asyncio.timeout(30):
        await one.streams.write(b"x" * 1_000_000)
        await one.streams.write(b"x")
    one.streams.end_input()
    await one.close()


async def test_a_terminal_without_input_has_its_end(execs: Execs) -> None:
    for argv in (("cat",), ("/bin/sh",)):
        end, _, errors = await execs.run("t1", *argv, window=WINDOW)
        assert (end.exit_code, errors) == (0, "")


async def test_a_terminal_is_the_controlling_one_and_hangs_up(execs: Execs) -> None:
    line = "trap 'stty size; exit 4' WINCH; stty size; tty >/dev/null && echo t >/dev/tty; read x"
    one = await execs.start("t1", "/bin/sh", "-c", line, has_input=True, window=WINDOW)
    seen = b""
    async for stream, data in one.output():
        assert stream is Stream.OUTPUT
        seen += data
        if seen.endswith(b"t\r\n"):
            one.streams.resize(WindowSize(rows=50, columns=132))
            await one.streams.write(b"\n")
    assert seen.replace(b"\r\n\r\n", b"\r\n") == b"24 80\r\nt\r\n50 132\r\n"
    assert (await one.wait()).exit_code == 4
    await one.close()

    end, output, _ = await execs.run("t1", "cat", data=b"typed\n", window=WINDOW)
    assert (end.exit_code, output) == (0, "typed\r\ntyped\r\n")


async def test_ctrl_c_in_a_terminal_reaches_the_program(execs: Execs) -> None:
    one = await execs.start(
        "t1", "/bin/sh", "-c", "echo on; exec sleep 60", has_input=True, window=WINDOW
    )
    assert (await anext(one.output()))[1] == b"on\r\n"
    await one.streams.write(b"\x03")
    assert (await one.wait()).signal == signal.SIGINT
    await one.close()


async def test_commands_are_bounded(execs: Execs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_execs, "MOST_OF_TASK", 2)
    both = [await execs.start("t1", "sleep", "60") for _ in range(2)]
    with pytest.raises(Unavailable, match="2 commands run beside task t1"):
        await execs.start("t1", "true")
    monkeypatch.setattr(task_execs, "MOST", 2)
    with pytest.raises(Unavailable, match="2 commands run on this agent"):
        await execs.start("t2", "true")
    await both[0].close()
    await execs.shell("t1", "true")


@pytest.mark.parametrize(
    "command",
    [
        ExecCommand(),
        ExecCommand(argv=[""]),
        ExecCommand(argv=["a\0b"]),
        ExecCommand(argv=["x"] * 5000),
        ExecCommand(argv=["x" * 200_000]),
    ],
)
def test_commands_that_no_agent_can_run(command: ExecCommand) -> None:
    with pytest.raises(InvalidRequest):
        check_command(command)


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_windows_that_no_terminal_can_have(side: str) -> None:
    with pytest.raises(ProtocolViolation, match="70000"):
        check_window(WindowSize(**{side: 70_000}))


async def test_only_live_tasks_have_commands(execs: Execs) -> None:
    with pytest.raises(NotFound, match="task t9 does not run on this agent"):
        await execs.start("t9", "true")


async def test_a_word_that_is_too_long_for_the_kernel(execs: Execs) -> None:
    with pytest.raises(InvalidRequest, match="Argument list too long"):
        await execs.start("t1", "echo", "\N{EURO SIGN}" * 60_000)
    assert len(execs.execs) == 0


async def test_the_end_of_a_task_waits_for_no_command_that_does_not_end(
    execs: Execs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_execs, "END_S", 0.05)
    one = await execs.start("t1", "sleep", "60")
    with monkeypatch.context() as stuck:
        stuck.setattr(TaskExec, "kill", lambda *_: None)
        told: list[str] = []
        assert execs.execs.end_with(key("t1"), lambda: told.append("over"))
        await eventually(lambda: told)
    await one.close()
    assert told == ["over"], "it is told once"
    assert not execs.execs.end_with(key("t1"), lambda: told.append("again"))


async def test_a_process_without_namespaces_is_not_entered(execs: Execs) -> None:
    running = execs.runner.supervisor.running(key("t1"))
    assert running is not None
    with pytest.raises(Unavailable, match="has not started in its namespaces yet"):
        find_inside(running)
