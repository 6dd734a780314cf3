"""Identifiers: each names a directory, so none may lead out of its parent."""

from __future__ import annotations

import hashlib

import pytest

from croupier.model.errors import InvalidRequest
from croupier.model.ids import (
    DEFAULT_ROLE,
    MAX_HOSTNAME,
    MAX_ID_BYTES,
    MAX_ROLE_BYTES,
    MAX_ROLES,
    check_hostname,
    check_id,
    check_role,
    check_roles,
    short_id,
)
from croupier.model.printable import printable, printable_lines
from croupier.model.token import BearerToken


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
        "a/../b", "-x", "x" * 2**20, "a/" * 2**19,
    ],
)  # fmt: skip
def test_illegal_roles(value: str) -> None:
    with pytest.raises(InvalidRequest, match="role"):
        check_role(value)


@pytest.mark.parametrize(
    ("roles", "refusal"),
    [
        ([f"r{at}/" + "/".join("d" * 31) for at in range(32)], "128 components in all"),
        ([f"{at}/" + "x" * 1000 for at in range(5)], "4096 bytes in all"),
    ],
)
def test_the_roles_of_a_framework_are_bounded_together(roles: list[str], refusal: str) -> None:
    check_roles(roles[:4])
    with pytest.raises(InvalidRequest, match=refusal):
        check_roles(roles)


@pytest.mark.parametrize("value", ["", "a\nb", "\x1b[31m", "\u2028", "x" * (MAX_HOSTNAME + 1)])
def test_illegal_hostnames(value: str) -> None:
    with pytest.raises(InvalidRequest, match="hostname"):
        check_hostname(value)


def test_legal_hostnames() -> None:
    for value in ("h1", "h1.example.org", "rack 3, left", "x" * MAX_HOSTNAME):
        assert check_hostname(value) == value


def test_the_default_role_is_the_star() -> None:
    assert check_role("*") == DEFAULT_ROLE


def test_a_framework_has_one_to_32_roles() -> None:
    many = [f"r{number}" for number in range(MAX_ROLES)]
    assert check_roles(["b", "a/c", "*"]) == ("b", "a/c", "*")
    assert check_roles(many) == tuple(many)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([], "at least one"),
        ([f"r{number}" for number in range(MAX_ROLES + 1)], "at most 32"),
        ([f"r{number}" for number in range(100_000)], "at most 32"),
        (["a", "b", "a"], "'a' is given twice"),
        (["a", "a/../b"], "illegal"),
        (["a", "x" * 2**20], "longer"),
    ],
)
def test_illegal_lists_of_roles(values: list[str], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        check_roles(values)


@pytest.mark.parametrize(
    ("own_id", "short"),
    [
        ("22dfb2-1-F16", "1-F16"),
        ("my-cluster-12-A3", "12-A3"),
        ("c-1-O7", "1-O7"),
        ("m-F1", "m-F1"),
        ("my-framework", "my-framework"),
        ("A38fe8e2dcce8905f", "A38fe8e"),
        ("A38fe8e2dcce8905", "A38fe8e2dcce8905"),
        ("", ""),
    ],
)
def test_a_short_id_leaves_out_the_cluster(own_id: str, short: str) -> None:
    assert short_id(own_id) == short


# Unprintable characters are escaped.


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, caf\u00e9 \u6f22", "plain text, caf\u00e9 \u6f22"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
        ("", ""),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert shown.isprintable()


def test_line_ends_are_kept_in_printable_lines() -> None:
    assert printable_lines("a\x07\nb\n") == "a\\x07\nb\n"


# Bearer tokens.


SECRET = "s" * 43


def test_the_text_of_a_token_is_parsed() -> None:
    token = BearerToken("0a1b2c3d", SECRET)
    assert BearerToken.parse(token.text) == token
    assert token.hash == hashlib.sha256(SECRET.encode()).digest()


def test_no_representation_shows_the_secret() -> None:
    token = BearerToken("0a1b2c3d", SECRET)
    assert SECRET not in repr(token) + str(token) + f"{token}"


@pytest.mark.parametrize(
    "text",
    ["", "crp_", f"crp_0a1b2c3_{SECRET}", f"crp_0A1B2C3D_{SECRET}", f"crp_0a1b2c3d_{SECRET}s",
     f"crp_0a1b2c3d_{SECRET}\n", f"Bearer crp_0a1b2c3d_{SECRET}", f"crp_0a1b2c3d_{'é' * 43}"],
)  # fmt: skip
def test_another_form_is_refused_without_a_quote(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        BearerToken.parse(text)
    assert "sss" not in str(caught.value)
