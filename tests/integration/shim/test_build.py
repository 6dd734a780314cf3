"""The choice of the shim: compiled or interpreted."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from croupier.agent.shim import build
from croupier.agent.shim.build import Shim, interpreted_shim, prepare_shim

Script = Callable[[str], None]


@pytest.fixture
def only_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Make a script the only compiler; $out is the path of its output."""
    tools = tmp_path / "tools"
    tools.mkdir()
    found = tools / "cc"
    monkeypatch.setattr("shutil.which", lambda name: str(found) if found.name == name else None)

    def write(line: str) -> None:
        search = 'while [ "$1" != -o ]; do shift; done; out=$2'
        found.write_text(f"#!/bin/sh\necho run >> {tools}/runs\n{search}\n{line}\n")
        found.chmod(0o755)

    return write


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def runs(work: Path) -> int:
    path = work.parent / "tools" / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


GOOD = "printf '#!/bin/sh\\necho \"croupier-shim 2\"\\n' > $out; chmod 755 $out"


def test_a_machine_without_a_compiler_gets_the_interpreted_one(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert prepare_shim(work) == interpreted_shim()
    assert not list(work.iterdir())


def test_the_shim_is_compiled_once(work: Path, only_compiler: Script) -> None:
    only_compiler(GOOD)
    (work / "shim-0123456789abcdef").touch()
    shim = prepare_shim(work)
    assert [str(path) for path in work.iterdir()] == list(shim.argv)
    assert (shim, prepare_shim(work).kind, runs(work)) == (prepare_shim(work), "c", 1)


def test_a_shim_that_others_may_write_is_compiled_again(work: Path, only_compiler: Script) -> None:
    only_compiler(GOOD)
    path = Path(prepare_shim(work).argv[0])
    path.chmod(0o777)
    prepare_shim(work)
    assert path.stat().st_mode & 0o777 == 0o755
    target = work / "elsewhere"
    path.rename(target)
    path.symlink_to(target)
    prepare_shim(work)
    assert not path.is_symlink()
    path.write_bytes(b"")
    prepare_shim(work)
    assert (path.stat().st_size > 0, runs(work)) == (True, 4)


def test_a_compiler_without_a_static_library_links_dynamically(
    work: Path, only_compiler: Script
) -> None:
    only_compiler(f"grep -q static /proc/$$/cmdline && exit 1\n{GOOD}")
    assert (prepare_shim(work).kind, runs(work)) == ("c", 2)


@pytest.mark.parametrize("line", ["echo no >&2; exit 1", "true", "echo rubbish > $out", "kill $$"])
def test_a_shim_that_does_not_work_is_not_used(
    work: Path, only_compiler: Script, line: str
) -> None:
    only_compiler(line)
    assert prepare_shim(work) == interpreted_shim()
    assert not list(work.iterdir())


def test_a_compiler_that_hangs_is_killed(
    work: Path, only_compiler: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "COMPILE_S", 0.2)
    only_compiler("sleep 60 & sleep 60")
    began = time.monotonic()
    assert prepare_shim(work) == interpreted_shim()
    assert (time.monotonic() - began < 5, runs(work)) == (True, 1)


@pytest.fixture
def without_exec(work: Path) -> Iterator[Path]:
    """Return a work dir on a disk that is mounted noexec."""
    words = ["mount", "-t", "tmpfs", "-o", "noexec,size=8m", "croupier-test", str(work)]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a disk: {done.stderr.decode().strip()}")
    yield work
    subprocess.run(["umount", "-l", str(work)], check=True)


@pytest.fixture
def without_writing(work: Path) -> Iterator[Path]:
    """Return a work dir without write permission; for root, on a read-only disk."""
    if os.geteuid() != 0:
        work.chmod(0o500)
        yield work
        work.chmod(0o700)
        return
    words = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "croupier-test", str(work)]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a disk: {done.stderr.decode().strip()}")
    yield work
    subprocess.run(["umount", "-l", str(work)], check=True)


def test_a_noexec_work_dir_gets_the_interpreted_one(without_exec: Path) -> None:
    assert prepare_shim(without_exec) == interpreted_shim()
    assert not list(without_exec.iterdir())


def test_a_read_only_work_dir_gets_the_interpreted_one(
    without_writing: Path,
) -> None:
    assert prepare_shim(without_writing) == interpreted_shim()


def test_both_print_the_version_of_the_protocol(compiled: Shim) -> None:
    for shim in (compiled, interpreted_shim()):
        done = subprocess.run(shim.argv, capture_output=True, check=True)
        assert done.stdout == b"croupier-shim 2\n"
        assert subprocess.run([*shim.argv, "x"], capture_output=True, check=False).returncode == 2


def test_the_source_has_no_warnings(tmp_path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, build.COMPILERS)), None)
    if compiler is None:
        pytest.skip("there is no C compiler")
    words = [compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]
    words += ["-o", str(tmp_path / "shim"), str(build._SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
