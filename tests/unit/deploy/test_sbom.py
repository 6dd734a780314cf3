"""The bill of materials: what the lock pins, with true licences, in valid CycloneDX."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import pytest

from deploy.locked import direct_of, name_of, needed, pins_of
from deploy.sbom import bill_of, licences_of

REPO = Path(__file__).resolve().parents[3]
PROJECT = (REPO / "pyproject.toml").read_text()
LOCK = (REPO / "deploy/requirements.lock").read_text()
TABLE = (REPO / "deploy/dependencies.md").read_text()
EXTRAS = ("dask", "futures", "oidc", "otel", "yaml")
LICENCES = licences_of(TABLE)
# How packages name a licence in metadata that are older than SPDX expressions there.
NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
}


def bill() -> dict[str, Any]:
    return bill_of(b"a wheel", PROJECT, LOCK, TABLE, 1_800_000_000)


def test_the_bill_is_valid() -> None:
    """By the schema of CycloneDX, with its formats and lists of licences."""
    # By name: mypy need not have the packages that only this test uses.
    schema = importlib.import_module("cyclonedx.schema").SchemaVersion.V1_6
    validator = importlib.import_module("cyclonedx.validation.json").JsonStrictValidator(schema)
    assert validator.validate_str(json.dumps(bill())) is None
    broken = bill()
    broken["components"][0]["scope"] = "perhaps"
    assert validator.validate_str(json.dumps(broken)) is not None


def test_the_bill_lists_each_pin_once_with_its_hashes() -> None:
    components = bill()["components"]
    assert [each["name"] for each in components] == list(pins_of(LOCK))
    hashes = [each["externalReferences"][0]["hashes"] for each in components]
    assert sum(map(len, hashes)) == LOCK.count("--hash=")
    assert all(hashes)


def test_only_what_every_installation_needs_is_required() -> None:
    scopes = {each["name"]: each["scope"] for each in bill()["components"]}
    assert {scopes[name] for name in ("grpcio", "aiohttp", "multidict", "cffi")} == {"required"}
    assert {scopes[name] for name in ("dask", "pyjwt", "cloudpickle")} == {"optional"}


def test_dependencies_name_parts_of_the_bill() -> None:
    made = bill()
    own = made["metadata"]["component"]["bom-ref"]
    known = [own, *(each["bom-ref"] for each in made["components"])]
    needs = {each["ref"]: each["dependsOn"] for each in made["dependencies"]}
    assert list(needs) == known
    assert {each for some in needs.values() for each in some} == set(known[1:])
    direct = direct_of(PROJECT, EXTRAS)
    assert {re.split("[/@]", each)[1] for each in needs[own]} == {name_of(each) for each in direct}


def test_the_same_input_gives_the_same_bill() -> None:
    assert bill() == bill()
    other = bill_of(b"another wheel", PROJECT, LOCK, TABLE, 1_800_000_000)
    assert other["serialNumber"] != bill()["serialNumber"]


def test_the_table_has_a_row_for_each_pin() -> None:
    assert list(LICENCES) == list(pins_of(LOCK))


def test_the_table_says_who_needs_a_package() -> None:
    optional = tomllib.loads(PROJECT)["project"]["optional-dependencies"]
    required = pins_of(needed(LOCK, direct_of(PROJECT, [])))
    for name in pins_of(LOCK):
        extras = [each for each in EXTRAS if name in pins_of(needed(LOCK, optional[each]))]
        who = "every installation" if name in required else f"extra {', '.join(extras)}"
        assert f"\n| {name} | {LICENCES[name]} | {who} |\n" in TABLE


@pytest.mark.parametrize("name", LICENCES)
def test_the_licence_is_the_one_that_the_package_states(name: str) -> None:
    try:
        about = metadata(name)
    except PackageNotFoundError:
        pytest.skip("not installed here")
    texts = about.get_all("License-Expression") or about.get_all("License") or [""]
    stated = texts[0]
    if not 0 < len(stated) <= 50:
        classifiers = about.get_all("Classifier") or []
        (stated,) = (
            each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")
        )
    assert NAMES.get(stated, stated) == LICENCES[name]
