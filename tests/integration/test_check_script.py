"""The script that runs a program beside its health check."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from croupier.apps.service.core.rules import Check, Health
from croupier.apps.service.health_checks import guarded


def start(tmp_path: Path, program: str, check: str, grace_s: float = 0) -> subprocess.Popen[str]:
    health = Health(Check.COMMAND, 0, "/", check, grace_s, 1, 1, 1)
    argv = guarded(("/bin/sh", "-c", program), health, 1.0)
    return subprocess.Popen(
        argv, cwd=tmp_path, text=True, stdin=subprocess.DEVNULL, start_new_session=True
    )


def ended(process: subprocess.Popen[str], timeout_s: float = 20) -> int:
    try:
        return process.wait(timeout=timeout_s)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_the_program_ends_as_without_it(tmp_path: Path) -> None:
    assert ended(start(tmp_path, "exit 7", "true")) == 7


def test_a_failing_check_ends_the_program(tmp_path: Path) -> None:
    process = start(tmp_path, "trap 'touch ended; exit 0' TERM; sleep 60 & wait", "false")
    assert ended(process) == 113
    assert (tmp_path / "ended").exists(), "it could end gracefully"


def test_a_check_that_hangs_has_failed(tmp_path: Path) -> None:
    assert ended(start(tmp_path, "exec sleep 60", "sleep 60")) == 113


def test_a_program_that_ignores_the_end_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, "trap '' TERM; while :; do sleep 0.1; done", "false")
    assert ended(process) == 113


def test_failures_in_the_grace_do_not_count(tmp_path: Path) -> None:
    process = start(tmp_path, "sleep 2; touch healthy; sleep 2; exit 5", "test -e healthy", 60)
    assert ended(process) == 5


def test_a_signal_for_the_group_ends_it_with_the_program(tmp_path: Path) -> None:
    program = "trap 'exit 9' TERM; touch up; while :; do sleep 0.1; done"
    process = start(tmp_path, program, "true")
    deadline = time.monotonic() + 10
    while not (tmp_path / "up").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)
    assert ended(process) == 9
