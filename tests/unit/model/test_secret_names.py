"""Plain variables that seem to hold a secret are named once."""

from __future__ import annotations

import logging

import pytest

from croupier.model.resources import Resources
from croupier.model.secrets import looks_secret
from croupier.sdk import Task
from croupier.sdk import task as task_module


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
