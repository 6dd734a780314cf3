from __future__ import annotations

import os
from pathlib import Path

import pytest

from croupier.agent import work_dir as module
from croupier.agent.work_dir import WorkDir
from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.ids import AgentId


async def test_the_id_is_kept_replaced_and_forgotten(tmp_path: Path) -> None:
    work = await WorkDir.open(tmp_path / "new" / "work")
    try:
        assert work.load_agent_id() == ""
        for agent_id in ("A1", "A2", ""):
            work.keep_agent_id(AgentId(agent_id))
            assert work.load_agent_id() == agent_id
        assert not list(work.path.glob("*.new"))
    finally:
        work.close()


@pytest.mark.parametrize("kept", [b"", b"\n", b"a/b\n", b"\xff\xfe", b"A1\nA2\n"])
async def test_a_damaged_id_is_an_error_that_says_what_to_do(tmp_path: Path, kept: bytes) -> None:
    (tmp_path / "agent_id").write_bytes(kept)
    work = await WorkDir.open(tmp_path)
    try:
        with pytest.raises(InvalidRequest, match="agent_id"):
            work.load_agent_id()
    finally:
        work.close()


async def test_an_id_that_cannot_be_written(tmp_path: Path) -> None:
    work = await WorkDir.open(tmp_path)
    try:
        (tmp_path / "agent_id.new").mkdir()
        with pytest.raises(Unavailable, match="cannot keep the agent's id"):
            work.keep_agent_id(AgentId("A1"))
    finally:
        work.close()


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
