"""Patterns from peers take linear time and bounded memory, or are refused."""

from __future__ import annotations

import time

import pytest

from croupier.model.attributes import (
    MAX_MEMORY,
    MAX_PATTERN,
    MAX_PROGRAM,
    Constraint,
    Operator,
    Pattern,
    matches,
    not_matches,
)
from croupier.model.errors import InvalidRequest

KILOBYTE = "a" * 1023 + "!"


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("r1", "r1", True),
        ("r1", "r12", False),
        ("r1", "xr1", False),
        (".*r1.*", "xr12", True),
        ("r1|r2", "r2", True),
        ("r1|r2", "r21", False),
        ("", "", True),
        ("", "a", False),
        (r"node-\d+", "node-17", True),
        ("(?i)NODE", "node", True),
        ("\u00e9+", "\u00e9\u00e9", True),
        ("r1", "r1\n", False),
        (".", "\ud800", True),
    ],
)
def test_a_pattern_matches_the_whole_text(pattern: str, text: str, found: bool) -> None:
    assert Pattern(pattern).matches(text) is found


@pytest.mark.parametrize(
    "pattern",
    [
        "(", "a)", "[z-a]", "*a", "a{2,1}", "\\", r"(a)\1", "(?=a)", "(?<=a)b", "a**", r"\Z",
        "a{1001}", "((a{0,20}){0,20}){0,20}", "\ud800",
    ],
)  # fmt: skip
def test_a_pattern_with_other_syntax_than_re2_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="pattern"):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["((a{0,9}){0,9}){0,9}", r"\pL{500}", "[^x]{900}", "(?:abc?){300}", "a{1000}"]
)
def test_a_too_complex_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match=r"too (complex|large)"):
        Pattern(pattern)


def test_a_pattern_is_bounded_in_bytes() -> None:
    assert Pattern(".*" * (MAX_PATTERN // 2)).size <= MAX_PROGRAM
    with pytest.raises(InvalidRequest, match="at most 1024"):
        Pattern("\u00e9" * (MAX_PATTERN // 2 + 1))
    began = time.thread_time()
    with pytest.raises(InvalidRequest, match="1048576"):
        Pattern("a" * 2**20)
    assert time.thread_time() - began < 0.05


def test_a_list_of_hosts_is_accepted() -> None:
    hosts = [f"node{n:03d}.rack{n % 7}.example" for n in range(30)]
    pattern = Pattern("|".join(hosts))
    assert all(pattern.matches(host) for host in hosts)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a)*b", "(a*)*b", "(.*a){20}b", "(?:a?){100}a{100}", "((a{0,7}){0,7}){0,7}"],
)
def test_a_catastrophic_pattern_takes_linear_time(pattern: str) -> None:
    compiled = Pattern(pattern)
    assert not compiled.matches(KILOBYTE)
    one, many = seconds(compiled, KILOBYTE), seconds(compiled, KILOBYTE * 10)
    assert many < 40 * one + 0.01
    assert one < 0.05


def seconds(pattern: Pattern, text: str) -> float:
    best = float("inf")
    for _ in range(3):
        # Of this thread only: other programs run meanwhile.
        began = time.thread_time()
        pattern.matches(text)
        best = min(best, time.thread_time() - began)
    return best


def test_the_library_writes_nothing_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 logs that a state machine outgrows its memory; the master must not."""
    Pattern("(.*a){20}").matches(KILOBYTE)
    with pytest.raises(InvalidRequest):
        Pattern("[^x]{1000}")
    assert capfd.readouterr() == ("", "")
    assert MAX_MEMORY == 65536


@pytest.mark.parametrize(
    ("constraint", "facts", "passes"),
    [
        (matches("rack", "r[12]"), {"rack": "r1"}, True),
        (matches("rack", "r[12]"), {"rack": "r3"}, False),
        (matches("rack", "r[12]"), {}, False),
        (matches("rack", ".*"), {}, False),
        (not_matches("rack", "r[12]"), {"rack": "r1"}, False),
        (not_matches("rack", "r[12]"), {"rack": "r3"}, True),
        (not_matches("rack", "r[12]"), {}, True),
        (matches("hostname", "h.*"), {"hostname": "h1"}, True),
        (matches("cores", "[48]"), {"cores": "8"}, True),
    ],
)
def test_constraints_by_pattern(
    constraint: Constraint, facts: dict[str, str], passes: bool
) -> None:
    assert constraint.holds(facts) is passes


def test_a_constraint_compiles_its_pattern_at_construction() -> None:
    constraint = matches("rack", "r.")
    assert constraint.pattern is not None
    assert constraint.pattern.text == "r."
    assert Constraint("rack", Operator.EQUALS, "r.").pattern is None
    with pytest.raises(InvalidRequest, match="constraint on rack: the pattern"):
        matches("rack", "(")
    with pytest.raises(InvalidRequest, match="too long"):
        not_matches("rack", "a" * 2**20)


def test_constraints_of_one_pattern_are_equal() -> None:
    assert matches("rack", "r.") == matches("rack", "r.")
    assert len({matches("rack", "r."), matches("rack", "r."), not_matches("rack", "r.")}) == 2
    assert str(not_matches("hostname", "h.*")) == "hostname not matches h.*"
