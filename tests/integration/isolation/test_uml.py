"""The harness of guests: results come out, nothing else does, and no guest outlives its test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.debian import NoProgram, unavailable
from tests.harness.uml import Ended, GuestFailed, read_only_box, run_in_uml

Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def in_guest(script: str, timeout_s: float = 60.0) -> Ended:
        try:
            return run_in_uml(["sh", "-c", script], directory=tmp_path, timeout_s=timeout_s)
        except NoProgram as reason:
            unavailable(reason)

    return in_guest


def processes_naming(path: Path) -> list[str]:
    """Return the processes whose command line holds `path`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(path).encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_exit_code_output_and_files_come_out(run: Run, tmp_path: Path) -> None:
    ended = run(f"cat /sys/fs/cgroup/cgroup.controllers; echo x >{tmp_path}/kept; exit 3")
    assert ended.code == 3
    assert {"cpu", "io", "memory", "pids"} <= set(ended.output.split())
    assert (tmp_path / "kept").read_text() == "x\n"


def test_root_of_the_guest_cannot_write_the_machine(
    run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The guest mounts everything anew and writable, as its root may."""
    if not read_only_box():
        unavailable(NoProgram("bwrap cannot make namespaces for this user"))
    outside = tmp_path_factory.mktemp("outside")
    victim = outside / "victim"
    victim.write_text("kept\n")
    before = victim.stat()
    seen = f"/run{victim}"
    ended = run(
        f"mount -o remount,rw /; mount -t hostfs none /run -o /; cat {seen};"
        f"echo x >>{seen}; chmod 777 {seen}; touch {seen}; mv {seen} {seen}.moved; rm -f {seen};"
        f"ln -s x /run{outside}/link; mkdir /etc/new /run/etc/new; echo done"
    )
    assert "kept\n" in ended.output
    assert ended.output.endswith("done\n")
    # All but touch, which changes only what the guest remembers of the file.
    assert ended.output.count("Read-only file system") == 7, ended.output
    assert victim.read_text() == "kept\n"
    assert (victim.stat().st_mtime_ns, victim.stat().st_mode) == (
        before.st_mtime_ns,
        before.st_mode,
    )
    assert list(outside.iterdir()) == [victim]
    assert not Path("/etc/new").exists()


def test_a_guest_ends_at_its_deadline_and_its_output_is_told(run: Run, tmp_path: Path) -> None:
    said = ""
    # How long a guest takes to boot depends on what else runs.
    for timeout_s in (4.0, 8.0, 16.0, 32.0):
        with pytest.raises(TimeoutError, match=f"no end after {timeout_s:g} s") as raised:
            run("echo so far; sleep 100", timeout_s=timeout_s)
        assert processes_naming(tmp_path) == []
        said = str(raised.value)
        if "so far" in said:
            break
    assert "so far" in said


def test_a_panic_is_told(run: Run, tmp_path: Path) -> None:
    with pytest.raises(GuestFailed, match=r"(?s)before.*[Pp]anic"):
        run("echo before; echo c >/proc/sysrq-trigger")
    assert processes_naming(tmp_path) == []
