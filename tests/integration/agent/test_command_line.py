"""Errors of `croupier-agent`: one clear line on stderr, and an exit code."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str) -> tuple[int, list[str]]:
    argv = [sys.executable, "-m", "croupier.agent", *arguments]
    environment = os.environ | {"CROUPIER_LOG_LEVEL": "error"}
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=30, env=environment, check=False
    )
    assert not done.stdout
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http", "0.0.0.0:0"], "can be reached from other machines"),
        (["--resources", "cpus:x"], "cpus: 'x' is not an amount"),
        (["--attributes", "rack"], "'rack' is not NAME:VALUE"),
        (["--master", "a:1,b:99999"], "is not a port"),
        (["--log-level", "loud"], "loud"),
        (["--bogus", "1"], "--bogus"),
    ],
)
def test_a_bad_value_is_one_line_and_code_2(arguments: list[str], message: str) -> None:
    code, lines = run(*arguments)
    assert code == 2
    (line,) = lines
    assert line.startswith("croupier-agent: ")
    assert message in line


def test_a_port_in_use_is_one_line_and_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, (line,) = run("--http", f"127.0.0.1:{port}", "--work-dir", str(tmp_path))
    assert code == 1
    assert line.startswith(f"croupier-agent: cannot listen on 127.0.0.1:{port}: ")
    assert line.endswith("Address already in use")


def test_an_unusable_work_dir_is_one_line_and_code_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, lines = run("--http", "127.0.0.1:0", "--work-dir", str(tmp_path / "file" / "work"))
    assert code == 1
    place = tmp_path / "file" / "work"
    assert lines == [f"croupier-agent: cannot use the work dir {place}: Not a directory"]


def test_damaged_records_are_one_line_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.log").write_text("nonsense\n")
    code, (line,) = run("--http", "127.0.0.1:0", "--work-dir", str(tmp_path))
    assert code == 1
    assert line == (
        f"croupier-agent: {tmp_path}/checkpoint.log is damaged: line 1 is damaged. Tasks"
        " keep running. To continue without the lost records, start with --recover=best-effort;"
        " to end all tasks of this agent and forget it, run with --recover=cleanup"
    )
    assert run("--recover", "cleanup", "--work-dir", str(tmp_path)) == (0, [])


def test_cleanup_refuses_a_work_dir_that_no_agent_has_used(tmp_path: Path) -> None:
    code, lines = run("--recover", "cleanup", "--work-dir", str(tmp_path / "typo"))
    assert code == 1
    assert "is not an agent's work dir" in lines[0]
    assert not (tmp_path / "typo").exists()
    assert not (tmp_path / "checkpoint.log").exists()


def test_the_command_loads_grpc_and_aiohttp_only_to_serve() -> None:
    code = """
import sys, croupier.agent.__main__
print([name for name in ("grpc", "aiohttp", "prometheus_client") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)
