"""The end of a daemon's process, as its parent sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, sys
from croupier.model.errors import Unavailable
from croupier.process.daemon import run_daemon

async def main(stop):
    if "fail" in sys.argv:
        raise Unavailable("the port is taken")
    print("up", flush=True)
    await stop.wait()
    print("asked to stop", flush=True)
    if "stubborn" in sys.argv:
        await asyncio.sleep(60)

sys.exit(run_daemon("tester", main))
"""


def start(*argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon(number: signal.Signals) -> None:
    with start() as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "asked to stop\n", "")


def test_children_can_be_waited_for_although_the_parent_ignores_sigchld() -> None:
    call = 'import subprocess; print(subprocess.call(["sh", "-c", "exit 3"]))'
    program = PROGRAM.replace('print("up"', f'{call}; print("up"')
    starter = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        " os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    )
    words = [sys.executable, "-c", starter, program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "3\n"
        assert process.stdout.readline() == "up\n"
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_a_second_signal_ends_the_process_at_once(number: signal.Signals, code: int) -> None:
    with start("stubborn") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.stdout.readline() == "asked to stop\n"
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == code


def test_a_croupier_error_is_one_line_and_exit_code_1() -> None:
    with start("fail") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (1, "", "tester: the port is taken\n")


LOGGING = """
import sys, structlog
from croupier.process.logging import configure_logging
configure_logging(sys.argv[1], "info")
log = structlog.get_logger()
log.debug("too_small")
log.info("agent_registered", agent_id="a1")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("agent_failed")
"""


def log_lines(log_format: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", LOGGING, log_format], capture_output=True, text=True, timeout=20
    )
    assert (run.returncode, run.stdout) == (0, "")
    return run.stderr.splitlines()


@pytest.mark.parametrize("log_format", ["auto", "json"])
def test_log_lines_are_json_without_a_terminal(log_format: str) -> None:
    first, second = (json.loads(line) for line in log_lines(log_format))
    assert (first["event"], first["level"], first["agent_id"]) == ("agent_registered", "info", "a1")
    assert second["exception"][0]["exc_type"] == "ZeroDivisionError"


def test_log_lines_can_be_text_without_colours() -> None:
    lines = log_lines("text")
    assert "agent_registered" in lines[0]
    assert "\x1b" not in "".join(lines)
    assert "ZeroDivisionError: division by zero" in lines


def test_the_daemon_ends_with_its_named_parent() -> None:
    """A killed parent cannot send a signal."""
    parent = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', sys.argv[1]],"
        " env={**os.environ, 'CROUPIER_PARENT': str(os.getpid())})\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, PROGRAM], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
        # The pipe's end is the daemon's end: it holds the other side.
        assert process.stdout.read() == "asked to stop\n"


def test_the_daemon_ends_at_once_if_its_parent_has_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "CROUPIER_PARENT": "1"}
    ) as process:
        assert process.wait(timeout=60) == -signal.SIGTERM


def test_imported_modules_are_excluded_from_garbage_collection() -> None:
    program = """
import gc
from croupier.process.daemon import run_daemon

async def main(stop):
    print(gc.get_freeze_count())

run_daemon("tester", main)
"""
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert int(told.stdout) > 1_000


def test_the_daemon_waits_until_its_named_parent_has_made_its_files(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from croupier.process.daemon import run_daemon

async def main(stop):
    print(Path(sys.argv[1]).read_text())

print("loaded", flush=True)
run_daemon("tester", main)
"""
    made = tmp_path / "made"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(made)],
        env={**os.environ, "CROUPIER_PARENT": str(os.getpid())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loaded\n"
        made.write_text("files")
        assert process.communicate(timeout=60)[0] == "files\n"
