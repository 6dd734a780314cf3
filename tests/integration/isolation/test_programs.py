"""The programs that tests of isolation need: fetched where they are missing, and run."""

from __future__ import annotations

import subprocess
from pathlib import Path

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


def test_a_package_that_lacks_the_program_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "KEPT", tmp_path / "tools")
    monkeypatch.setattr(debian, "unpack", lambda *_: None)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(debian.NoProgram, match="package does not hold it"):
        debian.downloaded("skopeo", "skopeo")
