"""Attributes and the constraints on them."""

from __future__ import annotations

import pytest

from croupier.model.attributes import (
    MAX_CONSTRAINTS,
    MAX_TEXT,
    Constraint,
    Operator,
    attribute_text,
    check_constraints,
    enforces,
    equals,
    exists,
    facts_of,
    matches,
    not_equals,
    not_exists,
    parse_attributes,
)
from croupier.model.errors import InvalidRequest
from croupier.model.isolation import Feature, known_features


def test_attributes_are_read_as_text_numbers_or_ranges() -> None:
    attributes = parse_attributes(" rack:r1 ; cores:8 ;load:0.5; slots:[1-4];when:10:30 ;")
    assert attributes == {
        "rack": "r1",
        "cores": 8000,
        "load": 500,
        "slots": ((1, 4),),
        "when": "10:30",
    }


@pytest.mark.parametrize(
    "text",
    ["rack", "rack:", ":r1", "rack:a;rack:b", "1rack:a", "r ack:a", "slots:[4-1]",
     "x:" + "a" * (MAX_TEXT + 1)],
)  # fmt: skip
def test_malformed_attributes_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_attributes(text)


def test_every_value_has_a_text_form() -> None:
    assert [attribute_text(v) for v in ("r1", 1500, ((1, 4), (9, 9)))] == ["r1", "1.5", "[1-4,9]"]


def test_the_hostname_is_a_fact() -> None:
    assert facts_of("h1", {"cores": 8000}) == {"hostname": "h1", "cores": "8"}


@pytest.mark.parametrize(
    ("constraint", "passes"),
    [
        (equals("rack", "r1"), True),
        (equals("rack", "r2"), False),
        (equals("zone", ""), False),
        (not_equals("rack", "r1"), False),
        (not_equals("rack", "r2"), True),
        (not_equals("zone", "a"), True),
        (exists("rack"), True),
        (exists("zone"), False),
        (not_exists("rack"), False),
        (not_exists("zone"), True),
        (equals("hostname", "h1"), True),
    ],
)
def test_constraints(constraint: Constraint, passes: bool) -> None:
    assert constraint.holds(facts_of("h1", {"rack": "r1"})) is passes


def test_constraints_have_a_readable_text_form() -> None:
    assert str(equals("rack", "r1")) == "rack equals r1"
    assert str(not_exists("rack")) == "rack not exists"


def test_a_constraint_is_checked_at_construction() -> None:
    with pytest.raises(InvalidRequest, match="not the name"):
        equals("ra ck", "r1")
    with pytest.raises(InvalidRequest, match="too long"):
        Constraint("rack", Operator.EQUALS, "x" * (MAX_TEXT + 1))


def test_the_number_of_constraints_is_bounded() -> None:
    assert len(check_constraints([exists("a")] * MAX_CONSTRAINTS)) == MAX_CONSTRAINTS
    with pytest.raises(InvalidRequest, match="more than"):
        check_constraints([exists("a")] * (MAX_CONSTRAINTS + 1))


def test_a_number_in_another_form_is_text() -> None:
    told = parse_attributes("version:1.10;build:1.0001;cores:8;load:0.5;big:99999999999999")
    assert told == {
        "version": "1.10",
        "build": "1.0001",
        "cores": 8000,
        "load": 500,
        "big": "99999999999999",
    }


def test_an_attribute_named_hostname_does_not_replace_the_hostname() -> None:
    assert facts_of("h1", {"hostname": "h2"}) == {"hostname": "h1"}


def test_features_are_a_fact_that_no_attribute_replaces() -> None:
    features = frozenset({Feature.PIDS, Feature.MEMORY})
    assert facts_of("h1", {"isolation": "images"}, features)["isolation"] == "memory,pids"
    assert facts_of("h1", {"isolation": "images"}) == {"hostname": "h1"}


@pytest.mark.parametrize(
    ("wanted", "held", "passes"),
    [
        ("memory", "memory", True),
        ("memory", "cpu-weight,memory,pids", True),
        ("pids memory", "cpu-weight,memory,pids", True),
        ("pids memory", "cpu-weight,memory,no-network,pids", True),
        ("pids memory", "cpu-weight,memory", False),
        ("cpu-weight", "cpu-quota", False),
        ("memory", "", False),
    ],
)
def test_a_constraint_on_features(wanted: str, held: str, passes: bool) -> None:
    facts = facts_of("h1", {}, known_features(held.split(",")))
    assert enforces(*wanted.split()).holds(facts) is passes


def test_a_constraint_on_features_is_readable() -> None:
    assert str(enforces("pids", "memory")) == "isolation has memory, pids"
    assert str(matches("isolation", "(.*,)?x(,.*)?")) == "isolation matches (.*,)?x(,.*)?"
    assert str(matches("isolation", ".*memory.*")) == "isolation matches .*memory.*"


@pytest.mark.parametrize("features", [(), ("time-travel",), ("memory", "time-travel")])
def test_unknown_features_are_refused(features: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match="features of isolation"):
        enforces(*features)
