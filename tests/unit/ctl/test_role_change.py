"""Requests of the commands that change roles, and their output."""

from __future__ import annotations

import pytest

from croupier.api.objects import as_object
from croupier.ctl.commands.role_settings import (
    QUOTA_PARTS,
    WEIGHT_PARTS,
    moved_lines,
    quota_change,
    role_change,
    weight_change,
)
from croupier.model.errors import InvalidRequest
from croupier.model.roles import RoleSettings
from croupier.v1 import operator_pb2 as pb
from croupier.wire.roles import settings_from_wire, settings_to_wire

Change = pb.RoleChange


def test_a_weight_changes_no_other_setting() -> None:
    change = weight_change("ads/prod", "2.5", [])
    assert (change.role, list(change.parts)) == ("ads/prod", [Change.PART_WEIGHT])
    assert settings_from_wire(change.settings) == RoleSettings(2500)


def test_resource_weights_are_changed_if_any_is_given() -> None:
    change = weight_change("ads", "1", ["gpus=2", "cpus=0.5"])
    assert list(change.parts) == [Change.PART_WEIGHT, Change.PART_RESOURCE_WEIGHTS]
    assert settings_from_wire(change.settings).resource_weights == {"gpus": 2000, "cpus": 500}


def test_only_given_parts_of_a_quota_are_changed() -> None:
    change = quota_change("ads", None, "cpus:4;mem:0", None)
    assert list(change.parts) == [Change.PART_LIMIT]
    assert settings_from_wire(change.settings).limit == {"cpus": 4000, "mem": 0}
    change = quota_change("ads", "", None, "inherit")
    assert list(change.parts) == [Change.PART_GUARANTEE, Change.PART_PREEMPTION]
    assert settings_from_wire(change.settings) == RoleSettings()
    assert settings_from_wire(quota_change("ads", None, None, "off").settings).preemption is False


def test_removals_name_their_parts_and_no_settings() -> None:
    weight = role_change("ads", None, WEIGHT_PARTS)
    assert not weight.HasField("settings")
    assert list(weight.parts) == [Change.PART_WEIGHT, Change.PART_RESOURCE_WEIGHTS]
    quota = role_change("ads", None, QUOTA_PARTS)
    assert not quota.HasField("settings")
    assert list(quota.parts) == [Change.PART_GUARANTEE, Change.PART_LIMIT, Change.PART_PREEMPTION]


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "2GB", "", "1e3", "1000000.001"])
def test_malformed_weights_are_refused(weight: str) -> None:
    with pytest.raises(InvalidRequest, match="the weight of ads"):
        weight_change("ads", weight, [])


@pytest.mark.parametrize("resources", [["cpus"], ["cpus=0"], ["cpus=1", "cpus=2"], ["c pus=1"]])
def test_malformed_resource_weights_are_refused(resources: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        weight_change("ads", "1", resources)


@pytest.mark.parametrize(
    "given",
    [
        (None, None, None),
        ("cpus", None, None),
        ("cpus:2", "cpus:1", None),
        (None, "ports:[1-2]", None),
        (None, None, "maybe"),
    ],
)
def test_malformed_quotas_are_refused(given: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(InvalidRequest):
        quota_change("ads", *given)


@pytest.mark.parametrize("role", ["", "a//b", "../x", "x" * 2000])
def test_malformed_roles_are_refused(role: str) -> None:
    with pytest.raises(InvalidRequest, match="role"):
        role_change(role, None, WEIGHT_PARTS)


def moved(
    role: str, before: RoleSettings, after: RoleSettings, entitled: tuple[int, int]
) -> pb.RoleMoved:
    def view(settings: RoleSettings, entitlement_ppm: int) -> pb.RoleView:
        return pb.RoleView(
            role=role,
            settings=settings_to_wire(settings),
            share_ppm=250_000,
            entitlement_ppm=entitlement_ppm,
        )

    return pb.RoleMoved(before=view(before, entitled[0]), after=view(after, entitled[1]))


def test_each_changed_role_has_one_line() -> None:
    plain = RoleSettings()
    changed = RoleSettings(2000, {"gpus": 500}, {"cpus": 4000}, {"mem": 0}, preemption=False)
    views = [
        as_object(moved("ads", plain, changed, (500_000, 666_667))),
        as_object(moved("web", plain, plain, (500_000, 333_333))),
    ]
    assert list(moved_lines(views, "ads", 3)) == [
        (
            "ads: guarantee none -> cpus:4, limit none -> mem:0MB, weight 1 -> 2, "
            "weights none -> gpus=0.5, preemption inherited -> off, "
            "entitled to 0.500 -> 0.667; its share is 0.250"
        ),
        "web: entitled to 0.500 -> 0.333; its share is 0.250",
        "and 3 more roles are entitled to another share",
    ]


def test_an_unchanged_role_has_a_line_too() -> None:
    view = as_object(moved("ads", RoleSettings(), RoleSettings(), (0, 0)))
    assert list(moved_lines([view], "ads", 0)) == ["ads: nothing is different; its share is 0.250"]
