"""The programs that tests of isolation need: fetched where they are missing, and run."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tests.harness import debian

VERSION = {"busybox": "--help", "mkfs.ext4": "-V"}


@pytest.mark.parametrize("name", debian.PACKAGES)
def test_a_program_runs(name: str) -> None:
    words = [str(debian.program(name)), VERSION.get(name, "--version")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 0, ran.stderr


def test_a_library_that_is_missing_is_fetched_with_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stub of ldd and of the packages stands for a machine without libgpgme."""
    library = "lib/x86_64-linux-gnu/libgpgme.so.11"
    unpacked = []

    def unpack(name: str, package: str, tree: Path) -> None:
        unpacked.append(package)
        file = tree / ("usr/bin/skopeo" if package == "skopeo" else library)
        file.parent.mkdir(parents=True)
        file.write_text('#!/bin/sh\necho "$LD_LIBRARY_PATH $*"\n')
        file.chmod(0o755)

    def missing(file: Path, tree: Path | None = None) -> list[str]:
        return [] if tree and (tree / library).exists() else ["libgpgme.so.11"]

    monkeypatch.setattr(debian, "KEPT", tmp_path / "tools")
    monkeypatch.setattr(debian, "unpack", unpack)
    monkeypatch.setattr(debian, "libraries_missing", missing)
    simulated = "Inst libgpgme11 (1.18)\nInst containers-common (1)\nConf libgpgme11 (1.18)\n"
    monkeypatch.setattr(debian, "run_or_say", lambda *_: simulated)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")

    entry = debian.downloaded("skopeo", "skopeo")
    ran = subprocess.run([entry, "a b"], capture_output=True, text=True, timeout=30, check=True)

    assert unpacked == ["skopeo", "libgpgme11"]
    tree = tmp_path / "tools/trees/skopeo"
    assert ran.stdout == f"{(tree / library).parent} a b\n"
    assert sorted(path.name for path in (tmp_path / "tools").iterdir()) == ["skopeo", "trees"]


def test_processes_that_need_a_program_fetch_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked, again = [], Event()

    def unpack(name: str, package: str, tree: Path) -> None:
        unpacked.append(package)
        (tree / "bin").mkdir(parents=True, exist_ok=True)
        (tree / "bin/skopeo").touch(mode=0o755)
        if len(unpacked) > 1:
            again.set()
        again.wait(0.2)

    monkeypatch.setattr(debian, "KEPT", tmp_path / "tools")
    monkeypatch.setattr(debian, "unpack", unpack)
    monkeypatch.setattr(debian, "libraries_missing", lambda *_: [])
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    with ThreadPoolExecutor() as pool:
        entries = list(pool.map(debian.downloaded, ["skopeo"] * 3, ["skopeo"] * 3))
    assert unpacked == ["skopeo"]
    assert set(entries) == {tmp_path / "tools/skopeo"}
    assert entries[0].is_symlink()


def test_a_package_that_lacks_the_program_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "KEPT", tmp_path / "tools")
    monkeypatch.setattr(debian, "unpack", lambda *_: None)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(debian.NoProgram, match="package does not hold it"):
        debian.downloaded("skopeo", "skopeo")
