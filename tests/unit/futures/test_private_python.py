"""Workers whose Python other users may not run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from croupier.futures.start import private_python_hint


def test_a_python_in_a_private_directory_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        python = Path(name, "venv/bin/python")
        python.parent.mkdir(parents=True)
        python.symlink_to("/bin/sh")
        hint = private_python_hint(str(python))
        assert f"may not enter {name}" in hint
        assert "croupier local --task-user root" in hint
        Path(name).chmod(0o755)
        assert not private_python_hint(str(python))
    assert not private_python_hint(f"{name}/gone/python")
