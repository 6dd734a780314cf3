from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from croupier.agent import work_dir as module
from croupier.agent.config import AgentConfig
from croupier.agent.recover import clean_up
from croupier.agent.shim import run_file
from croupier.agent.shim.start import create_locked
from croupier.agent.work_dir import WorkDir
from croupier.model.errors import Conflict, Unavailable


async def test_only_one_agent_uses_a_work_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_WAIT_S", 0.1)
    first = await WorkDir.open(tmp_path)
    with pytest.raises(Conflict, match="another agent uses the work dir"):
        await WorkDir.open(tmp_path)
    first.close()
    (await WorkDir.open(tmp_path)).close()


def test_an_agent_with_a_work_dir_needs_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_account(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(pwd, "getpwuid", no_account)
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    # The command line makes the default before it reads the flags.
    assert AgentConfig().work_dir == Path("~/.local/state/croupier/agent")


async def test_a_path_that_is_not_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match=r"cannot use the work dir .*file: File exists"):
        await WorkDir.open(tmp_path / "file")


async def test_a_path_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    root = os.geteuid() == 0
    if root:
        # Root may write everywhere, so another user tries.
        os.seteuid(65534)
    try:
        with pytest.raises(Unavailable, match="Permission denied"):
            await WorkDir.open(tmp_path / "work")
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("part", ["runs", "sandboxes", "removed"])
async def test_a_part_that_is_a_link_is_refused(tmp_path: Path, part: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("kept")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / part).symlink_to(elsewhere)
    with pytest.raises(Unavailable, match=f"{part} is a link"):
        await WorkDir.open(tmp_path / "work")
    with pytest.raises(Unavailable, match=f"{part} is a link"):
        await clean_up(tmp_path / "work")
    assert (elsewhere / "precious").read_text() == "kept"


async def test_files_other_than_run_files_stay(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for name, content in (("results.csv", b"1,2\n"), ("long", b" " * 1000)):
        (runs / name).write_bytes(content)
    os.close(create_locked(runs / "orphan"))
    (runs / "unfinished").write_bytes(b"")
    (runs / "zeros").write_bytes(bytes(run_file.SIZE))
    await clean_up(tmp_path)
    assert sorted(path.name for path in runs.iterdir()) == ["long", "results.csv"]
