"""A Python that only its owner may run, such as one in /root: tasks may have other accounts."""

from __future__ import annotations

import stat
import sys
from pathlib import Path


def private_python_hint(executable: str = sys.executable) -> str:
    """Return what to append to why a worker did not start; empty if all users may run the Python.

    It looks at this machine, where the Python of workers is the same by default.
    """
    given = Path(executable).absolute()
    for folder in (*given.parents, *given.resolve().parents):
        try:
            mode = folder.stat().st_mode
        except OSError:
            return ""
        if not mode & stat.S_IXOTH:
            return (
                f". Other users may not enter {folder}, and an agent that is root gives each task"
                f" a user of its own: chmod o+x {folder}, or on your own machine croupier local"
                " --task-user root"
            )
    return ""
