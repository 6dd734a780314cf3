"""Golden files: what was accepted; `--rewrite` accepts what there is now."""

from __future__ import annotations

from pathlib import Path

import pytest


def check_golden(request: pytest.FixtureRequest, path: Path, text: str) -> None:
    """Check that a text is the one that was accepted."""
    if request.config.getoption("--rewrite"):
        path.write_text(text)
    assert path.read_text() == text, f"--rewrite accepts it: {path}"
