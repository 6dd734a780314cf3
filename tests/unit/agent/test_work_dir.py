from __future__ import annotations

import os
from pathlib import Path

import pytest

from croupier.agent import work_dir as module
from croupier.agent.work_dir import WorkDir
from croupier.model.errors import Conflict, Unavailable


async def test_one_agent_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_WAIT_S", 0.1)
    first = await WorkDir.open(tmp_path)
    with pytest.raises(Conflict, match="another agent uses the work dir"):
        await WorkDir.open(tmp_path)
    first.close()
    (await WorkDir.open(tmp_path)).close()


async def test_a_place_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match=r"cannot use the work dir .*file: File exists"):
        await WorkDir.open(tmp_path / "file")


async def test_a_place_that_is_not_ours_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    root = os.geteuid() == 0
    if root:
        # Root may write everywhere; nobody may not.
        os.seteuid(65534)
    try:
        with pytest.raises(Unavailable, match="Permission denied"):
            await WorkDir.open(tmp_path / "work")
    finally:
        if root:
            os.seteuid(0)
