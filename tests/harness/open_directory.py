"""A directory that other users can enter.

Those of pytest are below one that each session of pytest closes to others when it starts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_directory() -> Iterator[Path]:
    """Make the directory, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="croupier-test-", ignore_cleanup_errors=True) as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
