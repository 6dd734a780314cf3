"""Secrets of tasks: nothing shows them, and variables that look like one are named."""

from __future__ import annotations

import logging
import pickle

import pytest

from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.model.secrets import (
    DIRECTORY_VARIABLE,
    MAX_SECRET_BYTES,
    MAX_SECRETS,
    MAX_SECRETS_BYTES,
    WITHHELD,
    SealedValue,
    SecretValues,
    looks_secret,
)
from croupier.model.task import Command, TaskInfo
from croupier.sdk import Task
from croupier.sdk import task as task_module

CANARY = "hunter2"
UNIT = Resources.parse("cpus:1")


def test_no_text_shows_a_value() -> None:
    values = SecretValues({"PASSWORD": CANARY})
    task = Task(["true"], resources=UNIT, secrets={"PASSWORD": CANARY})
    sealed = SealedValue("k", CANARY)
    for each in (values, task, task.info, task.command, sealed, Command(secrets={"A": sealed})):
        assert CANARY not in f"{each} {each!r}"
    assert "PASSWORD" in repr(values)


def test_values_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(SecretValues({"A": CANARY}))


@pytest.mark.parametrize(
    "values",
    [
        {"": "x"},
        {"1A": "x"},
        {"A-B": "x"},
        {"A" * 256: "x"},
        {"A\n": "x"},
        {DIRECTORY_VARIABLE: "x"},
        {"A": "x\0"},
        {"A": "x" * (MAX_SECRET_BYTES + 1)},
        {"A": "\u00e9" * (MAX_SECRET_BYTES // 2 + 1)},
        {f"A{n}": "x" * (MAX_SECRETS_BYTES // 4) for n in range(4)},
        {f"A{n}": "x" for n in range(MAX_SECRETS + 1)},
    ],
)
def test_malformed_secrets_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        SecretValues(values).check()
    assert "xx" not in str(refused.value)


def test_a_malformed_name_is_not_quoted() -> None:
    """It may be a value in the wrong place."""
    with pytest.raises(InvalidRequest) as refused:
        SecretValues({"hunter-2": "x"}).check()
    assert "hunter" not in str(refused.value)


def test_the_largest_secrets_are_accepted() -> None:
    half = MAX_SECRET_BYTES - 1
    SecretValues({"A": "x" * half, "B": "x" * half}).check()


def test_a_name_cannot_be_a_secret_and_a_plain_variable() -> None:
    with pytest.raises(InvalidRequest, match="PASSWORD is both"):
        Task(["true"], resources=UNIT, env={"PASSWORD": "x"}, secrets={"PASSWORD": "y"})


def test_an_ended_task_keeps_the_names_of_its_secrets_only() -> None:
    command = Command(("true",), secrets={"A": SealedValue("k", "text")})
    info = Task(["true"], resources=UNIT).info
    ended = TaskInfo(info.task_id, command, UNIT).slimmed()
    assert ended.command.secrets == {"A": WITHHELD}


def test_tasks_with_different_secrets_differ() -> None:
    one, two = (Task(["a"], resources=UNIT, task_id="t", secrets={"A": v}) for v in ("1", "2"))
    assert one != two


# Plain variables that seem to hold a secret are named once.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_PASSWORD", "x"),
        ("PGPASSWORD", "x"),
        ("api_key", "x"),
        ("KEY", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("GITHUB_TOKEN", "x"),
        ("DATABASE_URL", "postgres://bob:hunter2@db/app"),
        ("X", "ghp_0123456789abcdef"),
        ("X", "-----BEGIN RSA PRIVATE KEY-----"),
    ],
)
def test_what_looks_like_a_secret(name: str, value: str) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PASSWORD", ""),
        ("PASSWORD_FILE", "/run/pw"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("TOKENIZERS_PARALLELISM", "true"),
        ("MONKEY", "x"),
        ("PATH", "/bin"),
        ("URL", "https://example.org/a:b@c"),
    ],
)
def test_what_does_not(name: str, value: str) -> None:
    assert not looks_secret(name, value)


def test_a_task_warns_once_and_names_no_value(caplog: pytest.LogCaptureFixture) -> None:
    task_module._warn_of_plain.cache_clear()
    for _ in range(2):
        Task(["true"], resources=Resources.parse("cpus:1"), env={"DB_PASSWORD": "hunter2"})
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "DB_PASSWORD" in record.getMessage()
    assert "--secret" in record.getMessage()
    assert "hunter2" not in caplog.text
