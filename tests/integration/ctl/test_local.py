"""`croupier local` with fake daemons: start, restarts and stop; no process remains."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from croupier.cli.signals import SAME_SIGNAL_S
from croupier.ctl.local.children import descendants
from croupier.net.transport import free_addresses
from tests.harness.agent_defaults import LOCAL_FLAGS
from tests.harness.command import croupier, ended, environment, started
from tests.harness.eventually import eventually


@asynccontextmanager
async def cluster(
    work_dir: Path, *agents: str, stop_s: float = 60.0
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a cluster of fake agents; those that do not stop are killed after `stop_s`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.harness.local_cluster",
        str(work_dir),
        str(free_addresses(1)[0].port),
        str(stop_s),
        *agents,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        left = descendants(process.pid)
        if process.returncode is None:
            process.kill()
        for pid in left:
            # They may end with their parent.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.communicate()


async def welcomed(process: asyncio.subprocess.Process, work_dir: Path) -> None:
    """Wait until the cluster is ready and its fake agents handle signals."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 30)
    assert line.startswith(b"Croupier is ready")
    for log in work_dir.glob("agent-*.log"):
        await eventually(lambda log=log: "agent up" in log.read_text(), what=str(log))  # type: ignore[misc]


async def line_with(process: asyncio.subprocess.Process, word: str) -> str:
    assert process.stderr is not None
    while True:
        line = (await asyncio.wait_for(process.stderr.readline(), 30)).decode()
        assert line, f"stderr ended without {word!r}"
        if word in line:
            return line


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def child(process: asyncio.subprocess.Process, word: str) -> int:
    """Return the pid of the first child with `word` among its arguments."""
    for pid in sorted(descendants(process.pid)):
        if word in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
            return pid
    raise AssertionError(f"no child {word}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_all_in_order(tmp_path: Path, number: signal.Signals) -> None:
    async with cluster(tmp_path, "good", "good", "father") as process:
        await welcomed(process, tmp_path)
        family = descendants(process.pid)
        process.send_signal(number)
        _, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
    assert alive(family) == []
    assert "croupier local:" not in err.decode()
    assert (tmp_path / "master.log").read_text() == "master stopped\n"
    assert (tmp_path / "agent-1.log").read_text() == "agent up\n"


async def test_verbose_prints_log_lines(tmp_path: Path) -> None:
    async with cluster(tmp_path, "good") as process:
        assert await line_with(process, "agent up") == "[agent-1] agent up\n"


async def test_an_agent_that_dies_is_reported_and_restarted(tmp_path: Path) -> None:
    async with cluster(tmp_path, "father", "good") as process:
        await welcomed(process, tmp_path)
        pid = child(process, "father")
        orphan = child(process, "sleep")
        os.kill(pid, signal.SIGKILL)
        line = await line_with(process, "croupier local: ")
        assert f"agent-1 (pid {pid}) was killed by SIGKILL" in line
        assert line.endswith("; restarting it\n")
        assert child(process, "good")
        await eventually(lambda: orphan in descendants(process.pid), what="the orphan is adopted")
        up = (tmp_path / "agent-1.log").read_text
        await eventually(lambda: up().count("agent up") == 2, what="another agent")
        again = child(process, "father")
        assert again != pid
        family = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
    assert alive([pid, orphan, *family]) == []


async def test_an_adopted_orphan_is_reaped(tmp_path: Path) -> None:
    async with cluster(tmp_path, "father") as process:
        await welcomed(process, tmp_path)
        orphan = child(process, "sleep")
        os.kill(child(process, "father"), signal.SIGKILL)
        await line_with(process, "was killed")
        os.kill(orphan, signal.SIGKILL)
        await eventually(lambda: not alive([orphan]), what="reaped")


async def test_a_master_that_dies_is_reported_and_restarted(tmp_path: Path) -> None:
    async with cluster(tmp_path, "good") as process:
        await welcomed(process, tmp_path)
        pid, agent = child(process, "master"), child(process, "good")
        command = Path(f"/proc/{pid}/cmdline").read_text()
        os.kill(pid, signal.SIGKILL)
        line = await line_with(process, "croupier local: ")
        assert f"master (pid {pid}) was killed by SIGKILL" in line
        assert line.endswith("; restarting it\n")
        await eventually(lambda: pid not in descendants(process.pid), what="reaped")

        def again() -> bool:
            with suppress(AssertionError, OSError):
                return Path(f"/proc/{child(process, 'master')}/cmdline").read_text() == command
            return False

        await eventually(again, what="another master")
        assert child(process, "good") == agent, "the agents keep running"
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0


async def test_logs_are_kept_after_a_failure(tmp_path: Path) -> None:
    words = ("local", "--agents", "1", "--master-port", "0", "--http-port", "0")
    done = await croupier(*words, *LOCAL_FLAGS, "--", "--nosuch", TMPDIR=str(tmp_path))
    assert done.code == 1
    (kept,) = tmp_path.iterdir()
    assert f"croupier local: the logs are kept in {kept}\n" in done.err
    assert "--nosuch" in (kept / "master.log").read_text(), done.err
    assert {each.suffix for each in kept.iterdir()} == {".log"}, "no other file is kept"


async def test_logs_are_removed_without_a_failure(tmp_path: Path) -> None:
    words = ("local", "--agents", "1", "--master-port", "0", "--http-port", "0", *LOCAL_FLAGS)
    async with started(*words, TMPDIR=str(tmp_path)) as process:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        assert line.startswith(b"Croupier is ready")
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    assert (done.code, done.err) == (0, "")
    assert list(tmp_path.iterdir()) == []


async def test_a_daemon_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    async with cluster(tmp_path, "stubborn", "good", stop_s=3.0) as process:
        await welcomed(process, tmp_path)
        family = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(process.communicate(), 30)
    assert "killing the daemons that did not stop within 3 s: master, agent-1" in err.decode()
    assert alive(family) == []


async def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path, "stubborn") as process:
        await welcomed(process, tmp_path)
        family = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        # A loaded machine may handle the first one late, and the second one soon after it.
        await asyncio.sleep(4 * SAME_SIGNAL_S)
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
    assert alive(family) == []


async def test_an_agent_that_cannot_start_is_reported_with_its_last_log_line(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, "good", "failing") as process:
        out, err = await asyncio.wait_for(process.communicate(), 30)
        assert (process.returncode, out) == (1, b"")
    assert "agent-2 ended with exit code 2 before it was ready: no such flag\n" in err.decode()


async def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = await croupier("local", "--master-port", str(port), "--http-port", "0")
        assert done.code == 1
        assert done.err == (
            f"croupier: cannot listen on 127.0.0.1:{port}: Address already in use "
            "(choose another with --master-port)\n"
        )


async def test_an_impossible_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    argv = ["local", "--work-dir", str(tmp_path / "file"), "--master-port", "0"]
    done = await croupier(*argv, "--http-port", "0")
    assert done.code == 2
    assert "File exists" in done.err
    assert done.err.count("\n") == 1
