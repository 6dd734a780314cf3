"""Identifiers: each names a directory, so none may leave one."""

from __future__ import annotations

import pytest

from croupier.model.errors import InvalidRequest
from croupier.model.ids import DEFAULT_ROLE, MAX_ID_BYTES, MAX_ROLE_BYTES, check_id, check_role


@pytest.mark.parametrize(
    "value", ["a", "task-1", "...", ".a", "a.b:c@d", "\u00e9t\u00e9", "x" * 255]
)
def test_legal_ids(value: str) -> None:
    assert check_id("task", value) == value


@pytest.mark.parametrize(
    "value",
    [
        "", ".", "..", "a/b", "/", "../x", "a\\b", "a b", " a", "a\n", "a\tb", "a\0b", "\x7f",
        "\u00a0", "\u2028", "\u200b", "\ud800", "x" * (MAX_ID_BYTES + 1), "\u00e9" * 128,
    ],
)  # fmt: skip
def test_illegal_ids(value: str) -> None:
    with pytest.raises(InvalidRequest, match="task id"):
        check_id("task", value)


@pytest.mark.parametrize("value", ["*", "ads", "ads/prod", "a/b/c/d", "a-b", "\u00e9"])
def test_legal_roles(value: str) -> None:
    assert check_role(value) == value


@pytest.mark.parametrize(
    "value",
    [
        "", "/", "/a", "a/", "a//b", ".", "a/..", "a/./b", "a/*", "*/a", "**/", "-a", "a/-b",
        "a b", "a\tb", "a\\b", "x" * (MAX_ROLE_BYTES + 1),
    ],
)  # fmt: skip
def test_illegal_roles(value: str) -> None:
    with pytest.raises(InvalidRequest, match="role"):
        check_role(value)


def test_the_default_role_is_the_star() -> None:
    assert check_role("*") == DEFAULT_ROLE
