"""A recorded log that many tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.replayed import record


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "events.log"
    record(path)
    return path
