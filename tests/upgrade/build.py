"""The earlier build that clusters must be upgradable from."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

# The build of the cluster that tests upgrade, and whose files must be read.
OLD = Path(__file__).parent / "cf2f4e21"
REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = ("croupier.master.__main__", "croupier.agent.__main__", "croupier.sdk.framework")


@dataclass(frozen=True, slots=True)
class Build:
    """An extracted wheel; its programs run in this interpreter's environment."""

    path: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of a process that imports `croupier` from this build."""
        return {**os.environ, "PYTHONPATH": f"{self.path}:{REPOSITORY}"}

    def check(self) -> None:
        """Check that the programs come from this build.

        Raises:
            AssertionError: if one resolves to another path.
        """
        show = (
            "import sys, importlib.util as u\nprint(*(u.find_spec(n).origin for n in sys.argv[1:]))"
        )
        done = subprocess.run(
            [sys.executable, "-c", show, *PROGRAMS],
            env=self.environment, cwd=self.path, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        origins = [Path(origin) for origin in done.stdout.split()]
        assert len(origins) == len(PROGRAMS)
        assert all(origin.is_relative_to(self.path) for origin in origins), origins


def extract_old_build(directory: Path) -> Build:
    """Unpack the old wheel below `directory`."""
    path = directory / OLD.name
    with tarfile.open(OLD / "wheel.tar.xz") as archive:
        archive.extractall(path, filter="data")
    build = Build(path)
    build.check()
    return build
