"""The compiled shim, for work directories of agents in tests.

An agent compiles its shim once for each work directory. Tests make hundreds of those.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from croupier.agent.shim.build import Shim, prepare_shim


def place_shim(work_dir: Path) -> None:
    """Make the work directory if it does not exist, with the shim that an agent would compile."""
    program = Path(_compiled().argv[0])
    work_dir.mkdir(parents=True, exist_ok=True)
    placed = work_dir / program.name
    if not placed.exists():
        shutil.copy(program, placed)


@cache
def _compiled() -> Shim:
    """Compile the shim, once for each process of tests."""
    directory = tempfile.mkdtemp(prefix="croupier-test-shim-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return prepare_shim(Path(directory))
