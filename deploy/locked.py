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
    pins = {_name(pin): pin for pin in re.findall(r"^[a-z].*(?:\n +.*)+", lock, flags=re.MULTILINE)}
    parents = {name: {_name(each) for each in _via(pin)} for name, pin in pins.items()}
    wanted = {_name(each) for each in direct}
    if missing := wanted - set(pins):
        raise SystemExit(f"locked: {', '.join(sorted(missing))} is not in the lock")
    while more := {name for name in pins if name not in wanted and parents[name] & wanted}:
        wanted |= more
    return "".join(f"{pin}\n" for name, pin in pins.items() if name in wanted)


def direct_of(project: str, extras: Iterable[str]) -> list[str]:
    """Return the requirements in the text of a pyproject.toml, with those of some extras."""
    table = tomllib.loads(project)["project"]
    found: list[str] = list(table["dependencies"])
    for extra in extras:
        found += table["optional-dependencies"][extra]
    return found


def _name(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def _via(pin: str) -> list[str]:
    after = pin.partition("# via")[2]
    names = [line.strip(" #") for line in after.splitlines()]
    return [name for name in names if name and not name.startswith(OWN)]


if __name__ == "__main__":
    lock = (REPO / "deploy/requirements.lock").read_text()
    project = (REPO / "pyproject.toml").read_text()
    print(needed(lock, direct_of(project, sys.argv[1:])), end="")
