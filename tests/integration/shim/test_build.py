"""The program of the shim: of the wheel, or compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from croupier.agent.shim import build, compiling
from croupier.agent.shim.build import Shim, prepare_shim
from croupier.model.errors import Unavailable

Script = Callable[[str], None]


@pytest.fixture(autouse=True)
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the source of an installation that has no program of it."""
    source = tmp_path / "package" / "shim.c"
    source.parent.mkdir()
    source.write_text("int main(void) {}")
    monkeypatch.setattr(build, "_SOURCE", source)
    return source


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


def is_refused(work: Path, why: str) -> None:
    with pytest.raises(Unavailable, match=why) as told:
        prepare_shim(work)
    assert "Install a C compiler" in str(told.value)


def test_an_agent_without_a_compiler_says_what_to_install(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    is_refused(work, r"no C compiler was found \(cc, gcc, clang, tcc\)")
    assert not list(work.iterdir())


@pytest.fixture
def installed(source: Path) -> Path:
    """Return the program of an installation, which any user may own."""
    program = source.with_name(compiling.program_name(source))
    program.write_text("#!/bin/sh\necho 'croupier-shim 2'\n")
    program.chmod(0o777)
    return program


def test_the_program_of_the_installation_is_copied(
    work: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    shim = prepare_shim(work)
    (path,) = work.iterdir()
    assert shim == Shim((str(path),))
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (
        installed.read_bytes(), 0o755
    )  # fmt: skip
    # A running agent has its own one.
    installed.unlink()
    assert prepare_shim(work) == shim


def test_a_program_of_another_machine_is_not_used(
    work: Path, installed: Path, only_compiler: Script
) -> None:
    installed.write_text("rubbish")
    only_compiler(GOOD)
    assert (len(prepare_shim(work).argv), runs(work)) == (1, 1)


def test_a_program_of_older_sources_is_not_used(
    work: Path, source: Path, installed: Path, only_compiler: Script
) -> None:
    source.write_text("int main(void) { return 1; }")
    only_compiler(GOOD)
    assert (len(prepare_shim(work).argv), runs(work)) == (1, 1)
    assert installed.exists()


def test_the_shim_is_compiled_once(work: Path, only_compiler: Script) -> None:
    only_compiler(GOOD)
    (work / "shim-0123456789abcdef").touch()
    shim = prepare_shim(work)
    assert [str(path) for path in work.iterdir()] == list(shim.argv)
    assert (shim, runs(work)) == (prepare_shim(work), 1)


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
    assert (len(prepare_shim(work).argv), runs(work)) == (1, 2)


@pytest.mark.parametrize("line", ["echo no >&2; exit 1", "true", "echo rubbish > $out", "kill $$"])
def test_a_shim_that_does_not_work_is_not_used(
    work: Path, only_compiler: Script, line: str
) -> None:
    only_compiler(line)
    is_refused(work, "no shim")
    assert not list(work.iterdir())


def test_a_compiler_that_hangs_is_killed(
    work: Path, only_compiler: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "COMPILE_S", 0.2)
    only_compiler("sleep 60 & sleep 60")
    began = time.monotonic()
    is_refused(work, "takes too long")
    assert (time.monotonic() - began < 50, runs(work)) == (True, 1)


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


def test_a_noexec_work_dir_is_refused(without_exec: Path) -> None:
    is_refused(without_exec, "cannot be run in .*must not be mounted noexec")
    assert not list(without_exec.iterdir())


def test_a_read_only_work_dir_is_refused(without_writing: Path) -> None:
    is_refused(without_writing, str(without_writing))


def test_it_prints_the_version_of_the_protocol(shim: Shim) -> None:
    assert compiling.print_version(shim.argv, 5) == b"croupier-shim 2\n"
    done = subprocess.run([*shim.argv, "x"], capture_output=True, check=False)
    assert done.returncode == 2


def test_the_source_has_no_warnings(tmp_path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, compiling.COMPILERS)), None)
    if compiler is None:
        pytest.skip("there is no C compiler")
    words = [compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]
    words += ["-o", str(tmp_path / "shim"), str(build._SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
