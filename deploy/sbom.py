"""Print a software bill of materials (SBOM) of a wheel, as CycloneDX 1.6 in JSON.

    python3 -m deploy.sbom dist/croupier-1.0.0-py3-none-manylinux_2_17_x86_64.whl

It lists the packages that `requirements.lock` pins: those that every installation needs as
required, and those of extras as optional. Licences come from the table in `dependencies.md`. The
same wheel and the same SOURCE_DATE_EPOCH give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tomllib
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deploy.locked import OWN, direct_of, name_of, needed, parents_of, pins_of

REPO = Path(__file__).resolve().parents[1]
# A name-based UUID needs a namespace; this one stands for Croupier's bills of materials.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:croupier:sbom")
ROW = re.compile(r"^\| ([a-z0-9-]+) \| ([^|]+) \|", re.MULTILINE)

Json = dict[str, Any]


def bill_of(wheel: bytes, project: str, lock: str, table: str, epoch: int) -> Json:
    """Return the bill of a wheel.

    Arguments:
        wheel: the content of the file.
        project: the text of pyproject.toml.
        lock: the text of requirements.lock.
        table: the text of dependencies.md.
        epoch: the time of the bill, in seconds since 1970.
    """
    about = tomllib.loads(project)["project"]
    own = _reference(OWN, about["version"])
    pins = pins_of(lock)
    references = {name: _reference(name, _version_of(pin)) for name, pin in pins.items()}
    required = set(pins_of(needed(lock, direct_of(project, []))))
    licences = licences_of(table)
    content: Json = {
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": OWN,
                "version": about["version"],
                "description": about["description"],
                "purl": own,
                "hashes": [_hash(hashlib.sha256(wheel).hexdigest())],
                "licenses": [{"expression": about["license"]}],
            },
        },
        "components": [
            _component(name, pin, licences[name], is_required=name in required)
            for name, pin in pins.items()
        ],
        "dependencies": _dependencies(own, pins, references),
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(NAMESPACE, json.dumps(content)).urn,
        "version": 1,
        **content,
    }


def licences_of(table: str) -> dict[str, str]:
    """Return the SPDX expression of each package in the text of dependencies.md."""
    return {match[1]: match[2] for match in ROW.finditer(table)}


def _component(name: str, pin: str, licence: str, *, is_required: bool) -> Json:
    version = _version_of(pin)
    reference = _reference(name, version)
    found: Json = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "scope": "required" if is_required else "optional",
        "purl": reference,
        "licenses": [{"expression": licence}],
        # A package has a file for each kind of machine; pip accepts those with one of the hashes.
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{name}/{version}/",
                "comment": "the hashes of all files of this version",
                "hashes": [_hash(each) for each in re.findall(r"--hash=sha256:(\w+)", pin)],
            }
        ],
    }
    if marker := re.search(r" ; ([^\\\n]+?) *\\", pin):
        found["properties"] = [{"name": "croupier:marker", "value": marker[1]}]
    return found


def _dependencies(own: str, pins: Mapping[str, str], references: Mapping[str, str]) -> list[Json]:
    """Return what each package needs directly, Croupier first."""
    needs: dict[str, list[str]] = {own: [], **{each: [] for each in references.values()}}
    for name, pin in pins.items():
        if f"{OWN} (" in pin.partition("# via")[2]:
            needs[own].append(references[name])
        for parent in parents_of(pin):
            needs[references[parent]].append(references[name])
    return [{"ref": reference, "dependsOn": sorted(needs[reference])} for reference in needs]


def _version_of(pin: str) -> str:
    return pin.partition("==")[2].split()[0]


def _reference(name: str, version: str) -> str:
    return f"pkg:pypi/{name_of(name)}@{version}"


def _hash(digest: str) -> Json:
    return {"alg": "SHA-256", "content": digest}


def main(wheel: str) -> None:
    """Print the bill of the file `wheel`."""
    deploy = REPO / "deploy"
    bill = bill_of(
        Path(wheel).read_bytes(),
        (REPO / "pyproject.toml").read_text(),
        (deploy / "requirements.lock").read_text(),
        (deploy / "dependencies.md").read_text(),
        int(os.environ.get("SOURCE_DATE_EPOCH", "0")),
    )
    print(json.dumps(bill, indent=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
