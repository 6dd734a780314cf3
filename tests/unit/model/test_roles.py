"""Role paths, and the settings of a role."""

from __future__ import annotations

import pytest

from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
from croupier.model.roles import (
    RoleSettings,
    ancestors,
    format_amounts,
    is_within,
    parent_of,
    parse_amounts,
    parse_weight,
)


def test_a_path_has_its_ancestors_the_nearest_first() -> None:
    assert ancestors(Role("a/b/c")) == ("a/b", "a")
    assert ancestors(Role("*")) == ()
    assert parent_of(Role("a/b")) == "a"
    assert parent_of(Role("a")) is None


def test_a_role_is_within_itself_and_its_ancestors() -> None:
    assert is_within(Role("ads"), Role("ads"))
    assert is_within(Role("ads/prod"), Role("ads"))
    assert not is_within(Role("ads-prod"), Role("ads"))
    assert not is_within(Role("ads"), Role("ads/prod"))


def test_settings_equal_to_the_default_are_default() -> None:
    assert RoleSettings().is_default
    assert RoleSettings(resource_weights={"cpus": 1000}, guarantee={"cpus": 0}).is_default


@pytest.mark.parametrize(
    "settings",
    [
        RoleSettings(weight=2000),
        RoleSettings(resource_weights={"cpus": 2000}),
        RoleSettings(guarantee={"cpus": 1}),
        RoleSettings(limit={"cpus": 0}),
        RoleSettings(preemption=True),
        RoleSettings(preemption=False),
        RoleSettings(min_run_ms=0),
        RoleSettings(min_run_ms=86_400_000),
    ],
)
def test_other_settings_are_legal_and_not_default(settings: RoleSettings) -> None:
    settings.check()
    assert not settings.is_default


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (RoleSettings(weight=0), "above 0"),
        (RoleSettings(min_run_ms=86_400_001), "between 0 and 24 hours"),
        (RoleSettings(weight=-1000), "above 0 and at most 1000000, not -1"),
        (RoleSettings(weight=1_000_000_001), "at most 1000000"),
        (RoleSettings(resource_weights={"cpus": 0}), "the weight of cpus"),
        (RoleSettings(resource_weights={"no name": 1}), "not the name of a resource"),
        (RoleSettings(guarantee={"cpus": -1}), "negative"),
        (RoleSettings(limit={"cpus": 2**53 + 1}), "is too large"),
        (RoleSettings(limit={"a b": 1}), "not the name of a resource"),
        (RoleSettings(limit={f"r{i}": 1 for i in range(65)}), "more than 64"),
        (
            RoleSettings(guarantee={"mem": 2 * 1024_000}, limit={"mem": 1024_000}),
            "the guarantee mem:2GB is above the limit mem:1GB",
        ),
    ],
)
def test_invalid_settings_are_refused(settings: RoleSettings, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        settings.check()


def test_amounts_are_read_and_written_and_zero_is_kept() -> None:
    amounts = parse_amounts("mem:8GB; cpus:0 ;licences:1.5")

    assert amounts == {"mem": 8192_000, "cpus": 0, "licences": 1500}
    assert format_amounts(amounts) == "cpus:0;mem:8GB;licences:1.5"
    assert parse_amounts(format_amounts(amounts)) == amounts
    assert parse_amounts("") == {}


@pytest.mark.parametrize(
    "text",
    ["cpus", "cpus:", ":4", "cpus:-1", "cpus:nan", "cpus:1;cpus:2", "ports:[1-2]", "c pus:1"],
)
def test_malformed_amounts_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_amounts(text)


def test_a_weight_is_a_plain_number_above_zero() -> None:
    assert parse_weight("the weight of ads", "0.5") == 500
    for text in ("0", "-1", "nan", "inf", "1e3", "2GB", "1000001", "0.0001", "", "9" * 500):
        with pytest.raises(InvalidRequest, match="the weight of ads"):
            parse_weight("the weight of ads", text)
