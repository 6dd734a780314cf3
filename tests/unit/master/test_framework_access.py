"""Frameworks subscribe in permitted roles only; other principals need permission to end them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core.effects import SessionId
from croupier.master.core.events import Subscribe
from croupier.master.core.framework_commands import TeardownFramework, TornDown
from croupier.model.errors import FailedOver, NotFound, PermissionDenied, Unauthenticated
from croupier.model.ids import FrameworkId, Role
from tests.harness.secured_world import ADMIN, caller
from tests.harness.tenants import Scene


@pytest.mark.parametrize("by", ["bob", "admin", "oidc/anna", "agent/a1"])
def test_no_other_takes_over_a_framework(by: str) -> None:
    scene = Scene()
    for client_id in ("c1", "c2"):
        taken = scene.owned(by, "ads", framework_id=scene.annas, client_id=client_id)
        error = scene.error_of(taken)
        assert isinstance(error, NotFound)
        assert str(error) == f"no framework {scene.annas}"
    assert scene.error_of(scene.session) is None


def test_an_impostor_with_an_old_client_id_learns_nothing() -> None:
    scene = Scene()
    scene.owned("anna", "ads", framework_id=scene.annas, client_id="c2")
    again = scene.owned("anna", "ads", framework_id=scene.annas, client_id="c1")
    assert isinstance(scene.error_of(again), FailedOver)
    again = scene.owned("bob", "ads", framework_id=scene.annas, client_id="c1")
    assert isinstance(scene.error_of(again), NotFound)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", NotFound),
        ("bob", NotFound),
        ("vera", PermissionDenied),
        ("karl", TornDown),
        ("anna", TornDown),
        ("admin", TornDown),
    ],
)
def test_who_tears_down_a_framework(by: str, expected: type) -> None:
    scene = Scene()
    answer = scene.ask(TeardownFramework(1, scene.annas, caller=caller(by)))
    assert isinstance(answer, expected)
    assert scene.state.frameworks[scene.annas].is_removed == (expected is TornDown)


def test_permission_is_needed_in_all_roles_of_a_framework() -> None:
    scene = Scene()
    scene.allow("more client/anna register role:web")
    session = scene.owned("anna", roles=("ads", "web"))
    command = TeardownFramework(1, scene.framework_id(session), caller=caller("karl"))
    assert isinstance(scene.ask(command), PermissionDenied)


def test_who_learns_that_a_framework_was_removed() -> None:
    scene = Scene()
    scene.finish(scene.host, scene.annas, "t1")
    command = TeardownFramework(1, scene.annas, caller=ADMIN)
    scene.ask(command)
    assert scene.annas not in scene.state.frameworks
    for by, expected in (("anna", TornDown), ("karl", TornDown), ("vera", NotFound)):
        assert isinstance(scene.ask(replace(command, caller=caller(by))), expected)


@pytest.mark.parametrize(
    ("by", "role", "error"),
    [
        ("anna", "ads", None),
        ("anna", "ads/x/y", None),
        ("anna", "*", PermissionDenied),
        ("anna", "web", PermissionDenied),
        ("vera", "ads", PermissionDenied),
        ("agent/a1", "ads", PermissionDenied),
    ],
)
def test_who_subscribes_in_a_role(by: str, role: str, error: type | None) -> None:
    scene = Scene()
    found = scene.error_of(scene.owned(by, role))
    assert found is None if error is None else isinstance(found, error)
    assert len(scene.state.frameworks) == (2 if error is None else 1)


def test_all_roles_of_a_framework_need_permission() -> None:
    scene = Scene()
    assert isinstance(scene.error_of(scene.owned("anna", roles=("ads", "web"))), PermissionDenied)


def test_no_anonymous_framework_subscribes() -> None:
    scene = Scene()
    event = Subscribe(SessionId(900), FrameworkId(""), "f", (Role("ads"),), "c")
    scene.as_principal("").do(event)
    assert isinstance(scene.error_of(SessionId(900)), Unauthenticated)
