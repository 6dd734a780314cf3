"""Print the part of requirements.lock that Croupier with some extras needs.

    python3 deploy/locked.py [EXTRA...]

pip checks the hashes of the result with `--require-hashes`. A package is needed if Croupier names
it, or a needed package does, which the `# via` lines of the lock show.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
OWN = "croupier"


def needed(lock: str, direct: Iterable[str]) -> str:
    """Return the pins of `lock` that the packages `direct` need, themselves included."""
    pins = pins_of(lock)
    wanted = {name_of(each) for each in direct}
    if missing := wanted - set(pins):
        raise SystemExit(f"locked: {', '.join(sorted(missing))} is not in the lock")
    while more := {
        name for name, pin in pins.items() if name not in wanted and wanted & parents_of(pin)
    }:
        wanted |= more
    return "".join(f"{pin}\n" for name, pin in pins.items() if name in wanted)


def pins_of(lock: str) -> dict[str, str]:
    """Return the pins of a lock, several lines each, by the name of the package."""
    pins = re.findall(r"^[a-z].*(?:\n +.*)+", lock, flags=re.MULTILINE)
    return {name_of(pin): pin for pin in pins}


def parents_of(pin: str) -> set[str]:
    """Return the names of the packages that need the package of this pin, without Croupier."""
    after = pin.partition("# via")[2]
    names = [line.strip(" #") for line in after.splitlines()]
    return {name_of(name) for name in names if name and not name.startswith(OWN)}


def name_of(requirement: str) -> str:
    """Return the normalized name of the package that a requirement or a pin begins with."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def direct_of(project: str, extras: Iterable[str]) -> list[str]:
    """Return the requirements in the text of a pyproject.toml, with those of some extras."""
    table = tomllib.loads(project)["project"]
    found: list[str] = list(table["dependencies"])
    for extra in extras:
        found += table["optional-dependencies"][extra]
    return found


if __name__ == "__main__":
    lock = (REPO / "deploy/requirements.lock").read_text()
    project = (REPO / "pyproject.toml").read_text()
    print(needed(lock, direct_of(project, sys.argv[1:])), end="")
