"""The compiled shim, for work directories of agents in tests.

An agent compiles its shim once for each work directory. Tests make hundreds of those. In a guest
it would take longer than an agent waits, so guests get that of the machine.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from croupier.agent.shim.build import Shim, prepare_shim

# Names the directory of a shim for the tests of a guest.
SHIM_DIRECTORY = "SHIM_OF_TESTS"


def place_shim(work_dir: Path) -> None:
    """Make the work directory if it does not exist, with the shim that an agent would compile."""
    program = Path(compiled_shim().argv[0])
    work_dir.mkdir(parents=True, exist_ok=True)
    placed = work_dir / program.name
    if not placed.exists():
        shutil.copy(program, placed)


@cache
def compiled_shim() -> Shim:
    """Compile the shim, once for each process of tests."""
    if given := os.environ.get(SHIM_DIRECTORY):
        return prepare_shim(Path(given))
    directory = tempfile.mkdtemp(prefix="croupier-test-shim-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return prepare_shim(Path(directory))
