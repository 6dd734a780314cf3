"""The MPI of the tests, which is among their packages where there is a build of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.harness.debian import NoProgram, unavailable

BIN: Final = Path(sys.executable).parent


def require_mpi() -> None:
    """Skip the test, or fail it in CI, if there is no MPI in the environment of the tests."""
    if not (BIN / "mpiexec").is_file():
        unavailable(NoProgram(f"there is no mpiexec in {BIN}: mpich has no wheel for this machine"))
