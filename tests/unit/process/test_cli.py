"""Command lines: an error is one line and the right exit code."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import pytest
from cyclopts import App

from croupier.model.errors import InvalidRequest, Unavailable
from croupier.net.address import Address
from croupier.net.version import croupier_version
from croupier.process.cli import make_app, read_by, run_app

DEFAULT = Address("h", 1)


def make(seen: list[object]) -> App:
    app = make_app("croupier-test", "A daemon.")

    @app.default
    def start(
        *,
        listen: Annotated[Address, read_by(Address.parse)] = DEFAULT,
        lease: int = 1,
        fail: str = "",
    ) -> int | None:
        seen.append((str(listen), lease))
        if fail == "unavailable":
            raise Unavailable("the port is taken")
        if fail == "invalid":
            raise InvalidRequest("bad\nthing")
        return 3 if fail == "three" else None

    return app


def run(*argv: str) -> tuple[int, list[object]]:
    seen: list[object] = []
    return run_app(make(seen), argv), seen


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LISTEN", "LEASE", "FAIL", "CONFIG"):
        monkeypatch.delenv(f"CROUPIER_{name}", raising=False)


def test_flags_are_typed() -> None:
    assert run("--listen", "[::1]:7", "--lease", "2") == (0, [("[::1]:7", 2)])
    assert run("--listen=a:1") == (0, [("a:1", 1)])


def test_the_exit_code_of_a_command_is_that_of_the_program() -> None:
    assert run("--fail", "three")[0] == 3


@pytest.mark.parametrize(
    "argv", [["--listen", "nowhere"], ["--listen"], ["--lease", "many"], ["--colour"], ["word"]]
)
def test_a_bad_value_is_one_line_and_exit_code_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*argv)[0] == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("croupier-test: ")
    assert "--help" in err


def test_an_invalid_request_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--fail", "invalid")[0] == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "--help" not in err


def test_the_error_names_the_reason_for_a_bad_value(capsys: pytest.CaptureFixture[str]) -> None:
    run("--listen", "h:99999")
    assert "'99999' is not a port (0-65535)" in capsys.readouterr().err


def test_a_croupier_error_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--fail", "unavailable")[0] == 1
    assert capsys.readouterr().err == "croupier-test: the port is taken\n"


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == (0, [])
    assert "A daemon." in capsys.readouterr().out
    assert run("--version") == (0, [])
    assert capsys.readouterr().out.strip() == croupier_version()


def test_flags_override_the_environment_which_overrides_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "croupier.toml"
    config.write_text('[croupier-test]\nlisten = "file:1"\nlease = 5\n[other]\nx = 1\n')
    monkeypatch.setenv("CROUPIER_CONFIG", str(config))
    assert run() == (0, [("file:1", 5)])
    monkeypatch.setenv("CROUPIER_LISTEN", "env:1")
    assert run() == (0, [("env:1", 5)])
    assert run("--listen", "flag:1", "--lease", "6") == (0, [("flag:1", 6)])


@pytest.mark.parametrize("text", ["[croupier-test]\ncolour = 1\n", "not toml", None,
                                  '[croupier-test]\nlisten = "x"\n'])  # fmt: skip
def test_a_bad_file_is_one_line_and_exit_code_2(
    text: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "croupier.toml"
    if text is not None:
        config.write_text(text)
    monkeypatch.setenv("CROUPIER_CONFIG", str(config))
    assert run()[0] == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_bad_value_in_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CROUPIER_LEASE", "many")
    assert run()[0] == 2
    assert "CROUPIER_LEASE" in capsys.readouterr().err


async def test_help_does_not_show_durations_as_numbers() -> None:
    for daemon in ("master", "agent"):
        command = (sys.executable, "-m", f"croupier.{daemon}", "--help")
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        assert "seconds" not in out.decode()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("CROUPIER_LISTN", "did you mean CROUPIER_LISTEN?"),
        ("CROUPIER_WORKDIR", "did you mean CROUPIER_WORK_DIR?"),
        ("CROUPIER_MASTERS", "did you mean CROUPIER_MASTER?"),
        ("CROUPIER_COLOUR_OF_THE_PAGE", "unset it"),
    ],
)
def test_an_unknown_variable_is_refused(
    name: str, advice: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "x")
    assert run()[0] == 2
    err = capsys.readouterr().err
    assert err.startswith(f"croupier-test: unknown variable {name}")
    assert err.endswith(f"{advice}\n")
    # In a task, users and agents of other releases set more variables.
    monkeypatch.setenv("CROUPIER_TASK_ID", "t1")
    assert run()[0] == 0


@pytest.mark.parametrize(
    "name",
    [
        "CROUPIER_MASTER",  # of commands and agents
        "CROUPIER_WORK_DIR",  # of agents
        "CROUPIER_ADMIN_TOKEN_FILE",  # of masters
        "CROUPIER_TOKEN",
        "CROUPIER_TLS_CA",
        # Kubernetes sets these.
        "CROUPIER_PORT",
        "CROUPIER_SERVICE_HOST",
        "CROUPIER_MASTERS_SERVICE_PORT_GRPC",
        "CROUPIER_MASTERS_PORT_5050_TCP_ADDR",
    ],
)
def test_the_variables_of_other_programs_are_no_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "x")
    assert run()[0] == 0
