"""Callers change permitted roles only, and see no others."""

from __future__ import annotations

import pytest

from croupier.master.core.role_commands import RolesMoved, UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart
from croupier.model.errors import NotFound, PermissionDenied
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from tests.harness.secured_world import caller
from tests.harness.tenants import Scene


def weight(role: str) -> RoleChange:
    return RoleChange(Role(role), RoleSettings(5000), (RolePart.WEIGHT,))


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", NotFound),
        ("anna", NotFound),
        ("wim", NotFound),
        ("vera", PermissionDenied),
        ("admin", RolesMoved),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_who_changes_a_role(by: str, expected: type, dry_run: bool) -> None:
    scene = Scene()
    changes = (weight("web"), weight("ads"))
    answer = scene.ask(UpdateRoles(1, changes, dry_run, caller=caller(by)))
    assert isinstance(answer, expected)
    is_set = Role("ads") in scene.state.allocator.queries.roles()
    assert is_set == (expected is RolesMoved and not dry_run)


def test_a_change_shows_only_roles_that_the_caller_may_view() -> None:
    scene = Scene()
    scene.owned("bob", "web")
    moved = [
        [after.role for _, after in answer.others]
        for by in ("wim", "admin")
        if isinstance(
            answer := scene.ask(UpdateRoles(1, (weight("web"),), True, caller=caller(by))),
            RolesMoved,
        )
    ]
    assert moved[0] == []
    assert "ads" in moved[1]
