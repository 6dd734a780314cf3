"""A program that is forked from a loaded interpreter behaves as one that is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.eventually import eventually
from tests.harness.forked_start.popen import COLD_STARTS, Forks, argv_of, is_plain
from tests.harness.processes import running_as

CTL = [sys.executable, "-m", "croupier.ctl"]


@pytest.fixture
def forks() -> Forks:
    from tests.conftest import FORKS

    FORKS.starts = max(FORKS.starts, COLD_STARTS)
    return FORKS


@pytest.mark.parametrize("words", [["--help"], ["no-such-command"], ["agents", "--no-such-flag"]])
def test_output_and_exit_code_are_those_of_a_start(forks: Forks, words: list[str]) -> None:
    def run() -> tuple[int, str, str]:
        done = subprocess.run([*CTL, *words], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    forks.starts = 0
    started = run()
    assert forks.starts == 1
    forks.starts = COLD_STARTS
    assert run() == started


async def test_a_fork_is_a_child_with_its_own_directory_environment_and_command_line(
    forks: Forks, tmp_path: Path
) -> None:
    argv = [
        sys.executable, "-m", "croupier.master", "--listen", "127.0.0.1:0",
        "--http", "127.0.0.1:0", "--store", "sqlite:here.db",
    ]  # fmt: skip
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=tmp_path,
            env={**os.environ, "CROUPIER_LOG_FORMAT": "json"},
        )
    try:
        await eventually(lambda: '"master_started"' in log.read_text(), 20, "the master starts")
        assert (tmp_path / "here.db").exists()
        assert running_as(" ".join(argv)) == [process.pid]
        descriptors = Path(f"/proc/{process.pid}/fd")
        assert Path(descriptors / "1").readlink() == log
        process.terminate()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()


def test_what_a_fork_cannot_follow_is_started() -> None:
    plain = {
        "args": [*CTL, "agents"], "executable": None, "preexec_fn": None, "pass_fds": (),
        "close_fds": True, "shell": False, "gid": None, "gids": None, "uid": None, "umask": -1,
        "process_group": -1, "restore_signals": True, "env": None,
    }  # fmt: skip
    assert argv_of(plain) == ["croupier.ctl", "agents"]
    assert is_plain(plain)
    assert argv_of({**plain, "args": "croupier agents"}) is None
    assert argv_of({**plain, "args": [sys.executable, "-X", "dev", "-m", "croupier.ctl"]}) is None
    assert argv_of({**plain, "args": ["/other/bin/croupier", "agents"]}) is None
    assert not is_plain({**plain, "umask": 0o22})
    assert not is_plain({**plain, "env": {**os.environ, "PYTHONHASHSEED": "7"}})
    assert is_plain({**plain, "env": {**os.environ, "PYTHONFAULTHANDLER": "1"}})
