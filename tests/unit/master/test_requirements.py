"""Every call of every service has a requirement."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import croupier.v1
from croupier.master.services.requirements import REQUIREMENTS


def modules() -> list[ModuleType]:
    found = pkgutil.iter_modules(croupier.v1.__path__)
    names = [each.name for each in found if each.name.endswith("_pb2")]
    return [importlib.import_module(f"croupier.v1.{name}") for name in names]


def all_methods() -> set[str]:
    """Return the full names of all methods in the contract."""
    return {
        f"/{service.full_name}/{method.name}"
        for module in modules()
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def test_every_method_of_the_contract_has_a_requirement() -> None:
    assert set(REQUIREMENTS) == all_methods()
    assert len(REQUIREMENTS) >= 24
