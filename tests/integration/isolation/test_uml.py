"""The harness of guests: results come out, nothing else does, and no guest outlives its test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.debian import NoProgram, unavailable
from tests.harness.uml import Ended, GuestFailed, run_in_uml

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


def test_root_of_the_guest_cannot_write_the_machine(run: Run, tmp_path: Path) -> None:
    """The guest mounts everything anew and writable, as its root may."""
    victim = Path(__file__)
    before = victim.stat()
    ended = run(
        f"mount -o remount,rw /; mount -t hostfs none /run -o /; touch {victim} /run{victim};"
        f"rm -f {victim} /run{victim}; echo x >>/run{victim}; chmod 777 /run{victim};"
        f"mkdir /run/etc/new /etc/new /run/sys/fs/cgroup/new; echo done"
    )
    assert ended.output.endswith("done\n")
    after = victim.stat()
    assert (after.st_mtime_ns, after.st_mode, after.st_size) == (
        before.st_mtime_ns,
        before.st_mode,
        before.st_size,
    )
    assert not Path("/etc/new").exists()
    assert not list(tmp_path.iterdir())


def test_a_guest_ends_at_its_deadline(run: Run, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"(?s)no end after 5 s.*so far"):
        run("echo so far; sleep 100", timeout_s=5.0)
    assert processes_naming(tmp_path) == []


def test_a_panic_is_told(run: Run, tmp_path: Path) -> None:
    with pytest.raises(GuestFailed, match=r"(?s)before.*[Pp]anic"):
        run("echo before; echo c >/proc/sysrq-trigger")
    assert processes_naming(tmp_path) == []
