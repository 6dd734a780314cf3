"""Every call of every service has a requirement."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest

import croupier.v1
from croupier.master.services.checks import REQUIREMENTS
from croupier.v1 import access_pb2


def modules() -> list[ModuleType]:
    found = pkgutil.iter_modules(croupier.v1.__path__)
    names = [each.name for each in found if each.name.endswith("_pb2")]
    return [importlib.import_module(f"croupier.v1.{name}") for name in names]


def all_methods() -> set[str]:
    """Return the full names of all methods of a master in the contract."""
    return {
        f"/{service.full_name}/{method.name}"
        for module in modules()
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        # Agents serve it, to executors that have a token of theirs.
        if service.name != "ExecutorService"
    }


def test_every_method_of_the_contract_has_a_requirement() -> None:
    assert set(REQUIREMENTS) == all_methods()
    assert len(REQUIREMENTS) >= 24


@pytest.mark.parametrize(
    ("change", "about"),
    [
        (access_pb2.PolicyChange(), "group:"),
        (access_pb2.PolicyChange(set_group=access_pb2.Group()), "group:"),
        (access_pb2.PolicyChange(set_rule=access_pb2.Rule()), "rule:"),
        (access_pb2.PolicyChange(set_rule=access_pb2.Rule(name="r")), "rule:r"),
        (access_pb2.PolicyChange(remove_rule="r"), "rule:r"),
        (access_pb2.PolicyChange(add_member=access_pb2.Membership(group="g")), "group:g"),
    ],
)
def test_a_change_of_the_policy_is_about_a_rule_or_a_group_even_without_a_name(
    change: access_pb2.PolicyChange, about: str
) -> None:
    requirement = REQUIREMENTS["/croupier.v1.AccessService/UpdatePolicy"]
    request = access_pb2.UpdatePolicyRequest(changes=[change])
    assert requirement.object_of(request) == about
