"""Sandboxes of tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.agent.sandbox import Sandboxes


@pytest.fixture
def sandboxes(tmp_path: Path) -> Sandboxes:
    (tmp_path / "work" / "sandboxes").mkdir(parents=True)
    return Sandboxes(tmp_path / "work" / "sandboxes")
