"""Copies of directories whose names and content a task has chosen, perhaps as a trap."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from croupier.api.objects import Json
from croupier.ctl import task_copies, task_output
from croupier.ctl.task_copies import DirectoryCopy, names_of
from croupier.model.errors import InvalidRequest, NotFound, PermissionDenied, Unavailable


class Reader:
    """A reader of a file that may break off, or grow while it is read."""

    def __init__(self, content: Any) -> None:
        self._content = content
        self.offset, self.size = 0, 0

    async def read(self) -> AsyncIterator[bytes]:
        if isinstance(self._content, Exception):
            raise self._content
        chunks = list(self._content) if isinstance(self._content, tuple) else [self._content]
        # One that breaks off has more.
        self.size = sum(len(chunk) if isinstance(chunk, bytes) else 1 for chunk in chunks)
        for chunk in chunks:
            if isinstance(chunk, BaseException):
                raise chunk
            self.offset += len(chunk)
            yield chunk
        while self._content == b"grows":
            yield b"more"


class Sandbox:
    """A source: a directory is a dict, a file its content, an error or chunks; None: a link.

    `answers` are the errors of the next questions.
    """

    def __init__(self, tree: dict[str, Any], *answers: Exception) -> None:
        self._tree, self.answers = tree, list(answers)

    def _at(self, path: str) -> Any:
        found: Any = self._tree
        for name in filter(None, path.split("/")):
            found = found[name]
        return found

    async def list(self, path: str) -> Json:
        if self.answers:
            raise self.answers.pop()
        return listing(self._at(path))

    def reader(self, path: str) -> Reader:
        return Reader(self.answers.pop() if self.answers else self._at(path))


def listing(tree: dict[str, Any], *, cut: bool = False) -> Json:
    def file(name: str, content: Any) -> Json:
        kind = {dict: "directory", type(None): "link"}.get(type(content), "file")
        return {"name": name, "kind": kind, "size": 0, "modified_ms": 0, "mode": 0o4750}

    return {"items": [file(*each) for each in tree.items()], "cut": cut}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """Return an empty directory within another one; check at the end that nothing is beside it."""
    (tmp_path / "here").mkdir()
    yield tmp_path / "here"
    assert [each.name for each in tmp_path.iterdir()] == ["here"]


async def copied(here: Path, tree: dict[str, Any], *answers: Exception) -> DirectoryCopy:
    """Copy a sandbox to the directory."""
    root = os.open(here, os.O_DIRECTORY)
    try:
        copying = DirectoryCopy(cast("Any", Sandbox(tree, *answers)), (), root)
        await copying.run(listing(tree))
    finally:
        os.close(root)
    return copying


def written(here: Path) -> dict[str, bytes]:
    files = (each for each in here.rglob("*") if each.is_file())
    return {str(each.relative_to(here)): each.read_bytes() for each in files}


async def test_a_tree_is_copied_and_replaces_files(here: Path) -> None:
    (here / "d").mkdir()
    (here / "d" / "x").write_bytes(b"old")
    (here / "kept").write_bytes(b"kept")
    tree = {"a b": b"1", "new\nline": b"2", "d": {"x": b"3", "e": {}, "f": {"y": b""}}, "l": None}
    done = await copied(here, tree)
    assert written(here) == {
        "a b": b"1", "new\nline": b"2", "d/x": b"3", "d/f/y": b"", "kept": b"kept",
    }  # fmt: skip
    assert (here / "d" / "e").is_dir()
    assert (done.text, done.failures) == ("4 files; 1 links and special files were skipped", 0)
    # Never setuid.
    assert (here / "a b").stat().st_mode & 0o7777 == 0o750 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


async def test_no_name_leads_outside(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = here.parent / "outside"
    names = ("..", ".", "", "../x", "/etc/x", f"{outside}", "a/b", "\0", "x" * 300)
    tree: dict[str, Any] = dict.fromkeys(names, b"evil")
    tree |= {"good": b"1", "ok": {"..": {"outside": b"evil"}, "fine": b"2"}}
    done = await copied(here, tree)
    assert written(here) == {"good": b"1", "ok/fine": b"2"}
    assert done.failures == len(names) + 1
    assert "File name too long" in capsys.readouterr().err


async def test_a_link_that_is_here_is_not_followed(here: Path, tmp_path: Path) -> None:
    for name in ("directory", "file"):
        (here / name).symlink_to(tmp_path)
    done = await copied(here, {"directory": {"x": b"1"}, "file": b"2", "good": b"3"})
    assert (done.failures, written(here)) == (1, {"file": b"2", "good": b"3"})
    assert (here / "directory").is_symlink()


async def test_kinds_that_differ_are_not_replaced(here: Path) -> None:
    (here / "d").mkdir()
    (here / "f").write_bytes(b"kept")
    done = await copied(here, {"d": b"1", "f": {"x": b"2"}, "good": b"3"})
    assert (done.failures, written(here)) == (2, {"f": b"kept", "good": b"3"})


async def test_what_cannot_be_read_is_told(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_copies, "MAX_TOLD", 2)
    tree: dict[str, Any] = {name: NotFound(f"no file {name}") for name in ("a\ufffd", "b", "c")}
    tree |= {"good": b"1", "stdout": PermissionDenied("not output")}
    done = await copied(here, tree)
    assert (done.failures, done.text) == (4, "1 file; 4 failed")
    assert capsys.readouterr().err.splitlines() == [
        "a\ufffd: no file a\ufffd", "b: no file b", "... and more failures, which are not shown",
    ]  # fmt: skip
    with pytest.raises(PermissionDenied):
        await copied(here, {"x": PermissionDenied("no more")})


async def test_a_copy_that_breaks_off_leaves_no_half_file(here: Path) -> None:
    (here / "x").write_bytes(b"whole")
    for end in (KeyboardInterrupt(), PermissionDenied("withdrawn")):
        with pytest.raises(type(end)):
            await copied(here, {"x": (b"half", end)})
        assert written(here) == {"x": b"whole"}


async def test_a_file_that_grows_ends(here: Path) -> None:
    await copied(here, {"x": b"grows"})
    assert written(here) == {"x": b"grows"}


async def test_a_file_that_looks_larger_than_the_disk_is_not_begun(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Huge(Reader):
        async def read(self) -> AsyncIterator[bytes]:
            self.size, self.offset = 1 << 62, 1
            yield b"\0"

    monkeypatch.setattr(Sandbox, "reader", lambda *_: Huge(b""))
    done = await copied(here, {"x": b""})
    assert (done.failures, written(here)) == (1, {})


async def test_a_lost_master_is_waited_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_output, "RETRY_S", 0.0)
    await copied(here, {"d": {"x": b"1"}}, Unavailable("gone"), Unavailable("still"))
    assert written(here) == {"d/x": b"1"}
    monkeypatch.setattr(task_output, "PATIENCE_S", 0.0)
    with pytest.raises(Unavailable):
        await copied(here, {"d": {"x": b"1"}}, Unavailable("gone"))


async def test_a_copy_is_bounded(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep: dict[str, Any] = {"x": b"1"}
    for _ in range(task_copies.MAX_DEPTH):
        deep = {"d": deep}
    with pytest.raises(Unavailable, match="100 directories deep"):
        await copied(here, deep)
    monkeypatch.setattr(task_copies, "MAX_ENTRIES", 3)
    with pytest.raises(Unavailable, match="at most 3 files"):
        await copied(here, {"a": b"", "b": b"", "c": {"d": b""}})


def test_a_path_names_what_is_below_the_sandbox() -> None:
    assert names_of("./a//b/") == ("a", "b")
    assert names_of("/") == ()
    with pytest.raises(InvalidRequest):
        names_of("a/../..")
