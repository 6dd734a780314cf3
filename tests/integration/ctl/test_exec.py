"""`croupier exec` through a real master, beside a task of a real agent."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from croupier.agent.app import AgentDaemon
from croupier.ctl.commands.exec import exec_, parts_of
from croupier.master.app import MasterDaemon
from croupier.model.errors import FailedOver, InvalidRequest
from croupier.v1 import task_pb2
from tests.harness.agents import running_agent
from tests.harness.command import Ended, ended, environment, line, started
from tests.harness.masters import running_master
from tests.integration.master.test_task_files import launched

DEADLINE_S = 30.0


@asynccontextmanager
async def cluster(work: Path) -> AsyncIterator[tuple[MasterDaemon, AgentDaemon, str]]:
    """Run a master, and an agent whose task t1 runs; and the flag that names the master."""
    async with (
        running_master() as master,
        running_agent(work, master.address) as agent,
        launched(master, "echo up; sleep 600") as framework,
    ):
        # STARTING may come alone, and then no command can join the task yet.
        while all(
            status.state != task_pb2.TASK_RUNNING
            for status in (await framework.next("update")).update.statuses
        ):
            pass
        yield master, agent, f"--master={master.address}"


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():  # noqa: ASYNC110 - processes set no events
            await asyncio.sleep(0.02)


async def test_output_input_and_the_end_of_a_command(tmp_path: Path) -> None:
    async with cluster(tmp_path / "work") as (master, agent, at):
        shell = "pwd; printf '\\033\\200' >&2; exit 3"
        home = str(next((tmp_path / "work" / "sandboxes").iterdir()) / "t1")
        found = await raw("exec", at, "t1", "--", "sh", "-c", shell)
        assert found == (3, f"{home}\n".encode(), b"\x1b\x80")
        data = os.urandom(1 << 20)
        (tmp_path / "in").write_bytes(data)
        found = await raw("exec", at, "-i", "t1", "--", "cat", stdin=tmp_path / "in")
        assert found == (0, data, b"")
        found = await raw("exec", at, "t1", "--", "nosuch")
        assert (found[0], b"no such program" in found[2]) == (127, True), found
        killed = "stty size; kill -KILL $$"
        found = await raw("exec", at, "-t", "t1", "--", "sh", "-c", killed)
        assert found == (137, b"24 80\r\n", b"")
        found = await raw("exec", at, "t2", "--", "true")
        assert (found[0], b"croupier tasks lists the tasks" in found[2]) == (1, True), found
        found = await raw("exec", at, "--framework", "nosuch", "t1", "--", "true")
        assert (found[0], b"no framework 'nosuch'" in found[2]) == (1, True)
        await an_open_pipe_does_not_delay_the_end(at)
        await an_interrupt_ends_the_command(at)
        await until(lambda: not len(agent.execs))
        await the_command_ends_with_the_term(master, at)


async def raw(*argv: str, stdin: Path = Path(os.devnull)) -> tuple[int | None, bytes, bytes]:
    """Run `croupier ARGV` with a file as input; return what it wrote as bytes."""
    with stdin.open("rb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "croupier.ctl",
            *argv,
            env=environment(),
            stdin=file,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()
        return process.returncode, out, err


async def an_open_pipe_does_not_delay_the_end(at: str) -> None:
    reading, writing = os.pipe()
    try:
        path = Path(f"/proc/self/fd/{reading}")
        assert await raw("exec", at, "-i", "t1", "--", "true", stdin=path) == (0, b"", b"")
    finally:
        os.close(reading)
        os.close(writing)


async def an_interrupt_ends_the_command(at: str) -> None:
    async with started("exec", at, "t1", "--", "sh", "-c", "echo up; exec sleep 600") as process:
        assert await line(process) == "up\n"
        process.send_signal(signal.SIGINT)
        assert await ended(process) == Ended(130, "", "")


async def the_command_ends_with_the_term(master: MasterDaemon, at: str) -> None:
    async with started("exec", at, "t1", "--", "sh", "-c", "echo up; exec sleep 600") as process:
        assert await line(process) == "up\n"
        term = master.leadership.current
        assert term is not None
        term.journal.close(FailedOver("another master leads"))
        assert await ended(process) == Ended(
            125, "", "croupier: the command was ended: another master leads\n"
        )


class Typist:
    """A user at a terminal, at which `croupier exec` runs."""

    def __init__(self) -> None:
        self._terminal, self.line = os.openpty()
        os.set_blocking(self._terminal, False)
        self.seen, self._grown = "", asyncio.Event()
        self.before = termios.tcgetattr(self.line)
        asyncio.get_running_loop().add_reader(self._terminal, self._read)

    def _read(self) -> None:
        self.seen += os.read(self._terminal, 65536).decode()
        self._grown.set()

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def sees(self, text: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.seen:
                self._grown.clear()
                await self._grown.wait()

    def is_restored(self) -> bool:
        return termios.tcgetattr(self.line) == self.before

    async def runs(self, *argv: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "croupier.ctl",
            *argv,
            env=environment(TERM="xterm-256color"),
            stdin=self.line,
            stdout=self.line,
            stderr=self.line,
        )

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._terminal)
        os.close(self._terminal)
        os.close(self.line)


@asynccontextmanager
async def typist() -> AsyncIterator[Typist]:
    user = Typist()
    try:
        yield user
    finally:
        user.close()


async def test_a_shell_at_a_terminal(tmp_path: Path) -> None:
    async with cluster(tmp_path / "work") as (_, agent, at), typist() as user, typist() as other:
        user.resize(33, 99)
        ends = await other.runs("exec", at, "-it", "t1", "--", "cat")
        shell = await user.runs("exec", at, "-it", "t1", "--", "sh")
        user.type("echo $((6*7)) $TERM; stty size\n")
        await user.sees("42 xterm-256color\r\n33 99\r\n")
        user.resize(44, 111)
        shell.send_signal(signal.SIGWINCH)
        user.type("until [ \"$(stty size)\" = '44 111' ]; do sleep 0.05; done; echo re''sized\n")
        await user.sees("resized")
        # Ctrl-C goes to what the shell runs, and the shell lives.
        user.type("sh -c \"echo be''gun; exec sleep 600\"\n")
        await user.sees("begun")
        user.type("\x03")
        # The terminal drops what was typed before its echo.
        await user.sees("^C")
        user.type("echo ali''ve\n")
        await user.sees("alive")
        assert not user.is_restored()
        user.type("exit 5\n")
        assert await asyncio.wait_for(shell.wait(), DEADLINE_S) == 5
        assert user.is_restored()
        other.type("echoed\r")
        await other.sees("echoed\r\nechoed\r\n")
        ends.send_signal(signal.SIGQUIT)
        assert await asyncio.wait_for(ends.wait(), DEADLINE_S) == 131
        assert other.is_restored()
        await until(lambda: not len(agent.execs))
        # The agent is lost.
        ends = await other.runs("exec", at, "-it", "t1", "--", "sh", "-c", "echo ag''ain; sleep 9")
        await other.sees("again")
        await agent._exec_calls.close()
        assert await asyncio.wait_for(ends.wait(), DEADLINE_S) == 125
        await other.sees("the connection to agent")
        assert other.is_restored()


def test_wrong_command_lines() -> None:
    for words, has_terminal, about in (
        ((), False, "croupier exec TASK -- CMD"),
        (("a\udc80",), False, "UTF-8"),
        (("sh",), True, "leave out -t"),
    ):
        with pytest.raises(InvalidRequest, match=about):
            exec_("t1", *words, stdin=True, tty=has_terminal)


@pytest.mark.parametrize("name", [os.devnull, "/nonexistent"])
async def test_input_that_cannot_be_waited_for(name: str) -> None:
    if name == os.devnull:
        fd = os.open(name, os.O_RDONLY)
        try:
            assert [each async for each in parts_of(fd)] == []
        finally:
            os.close(fd)
    else:
        assert [each async for each in parts_of(1_000_000)] == []
