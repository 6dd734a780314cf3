"""Project quotas without a file system that has them; `integration/isolation` has the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from croupier.agent.isolation import project_quota
from croupier.agent.isolation.project_quota import FIRST_ID, ProjectQuotas


def test_a_pipe_in_a_sandbox_does_not_hold_up_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "stdout")
    marked: list[bool] = []
    monkeypatch.setattr(project_quota, "project_of", lambda fd: FIRST_ID)
    monkeypatch.setattr(
        project_quota, "_set_project", lambda fd, project, inherits=False: marked.append(inherits)
    )
    monkeypatch.setattr(ProjectQuotas, "_write", lambda quotas, project, blocks, files: None)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        ProjectQuotas.__new__(ProjectQuotas).limit(fd, 1 << 20)
    finally:
        os.close(fd)
    assert marked == [True, False]
