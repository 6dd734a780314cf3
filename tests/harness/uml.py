"""Commands in a small virtual machine: a user-mode kernel with cgroup v2.

Tests of cgroup v2 need a hierarchy of their own, with every controller, and must not be able to
harm the machine. Debian's `linux.uml` is a kernel that runs as an ordinary process. It boots in
two seconds, and needs no root and no disk image: it reads the machine's own files through hostfs.

The guest has one CPU, kernel 6.1, cgroup v2 at `/sys/fs/cgroup` with cpu, io, memory and pids
enabled below the root, loopback, and empty `/tmp`, `/run`, `/var/tmp` and `/dev/shm`. Everything
else is the machine's file system, which cannot be written: `bwrap` gives the kernel's process
a read-only view without network, so that even a remount by root of the guest changes nothing.

What works in it: memory.peak, memory.oom.group, cgroup.kill, cpu.max, cpu.weight, io.max, pids.max
and pids.peak; all namespaces, also of an ordinary user; bwrap as root and as nobody; seccomp
filters; runc and crun; ext4 on a disk. With modules: loop, overlay, veth, and project quotas of
ext4 (`QUOTA`).
What it lacks: PSI (`/proc/pressure`, `memory.pressure`), io.weight, cpuset, Landlock, a second CPU.
Processes compute at full speed, but system calls, page faults and forks are 10 to 100 times slower
than on the machine: Python starts in half a second, pytest in three, `croupier local` in 20, and
a task by `croupier run` takes three. No measurement of cost belongs here.
`chown` fails in a directory of the machine; use `/tmp` of the guest for that.

On a processor with AMX, this kernel cannot set the registers of its processes: the state that
ptrace moves is larger than its buffer. `NO_XSTATE` makes it move the state of SSE only. Page faults
then lose the rest, so `NO_AVX` tells the programs of a guest to do without AVX.

To try something: `.venv/bin/python -m tests.harness.uml COMMAND ARGUMENT...`
"""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.debian import NoProgram, downloaded, found

REPO = Path(__file__).resolve().parents[2]
INIT = Path(__file__).with_name("uml_init.py")
# What hides behind the guest's empty folders must be shown again.
SHOWN = (REPO, Path(sys.prefix), Path(sys.base_prefix))
# A seccomp filter that lets ptrace(PTRACE_GETREGSET, ..., NT_X86_XSTATE) fail with EINVAL.
NO_XSTATE = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x20, 0, 0, 0),  # load the number of the system call
        (0x15, 0, 5, 101),  # ptrace, or go on
        (0x20, 0, 0, 16),  # load its request
        (0x15, 0, 3, 0x4204),
        (0x20, 0, 0, 32),  # load what it is about
        (0x15, 0, 1, 0x202),
        (0x06, 0, 0, 0x00050000 | errno.EINVAL),
        (0x06, 0, 0, 0x7FFF0000),
    )
)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
# Variables that let programs do without AVX.
NO_AVX = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX_Fast_Unaligned_Load"
    ",-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ",
    "OPENSSL_ia32cap": "~0x1000000000000000:~0xFFFFFFFFFFFFFFFF",
}
# Modules for `mount -o prjquota` of ext4.
QUOTA = ("quota_tree", "quota_v2")


class GuestFailed(Exception):
    """The guest did not run the command to its end; the message holds what it printed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a command in a guest.

    Attributes:
        code: the exit code, or the negative signal that ended it.
        output: what it wrote to standard output and standard error.
        console: messages of the kernel and of the guest's init.
    """

    code: int
    output: str
    console: str


def in_guest() -> bool:
    """Return whether this process runs in a guest."""
    return "User Mode Linux" in Path("/proc/cpuinfo").read_text()


def run_in_uml(
    command: Sequence[str | Path],
    *,
    directory: Path | None = None,
    timeout_s: float = 60.0,
    memory_mib: int = 512,
    env: Mapping[str, str] | None = None,
    disks: Sequence[Path] = (),
    modules: Sequence[str] = (),
    systemd: bool = False,
) -> Ended:
    """Boot a guest, run `command` in it as root, and return how it ended.

    Arguments:
        command: a program and its arguments; paths are the machine's. It starts in the root of the
            repository.
        directory: a directory that the guest can write, at the same path as outside. By default
            the command can write only what ends with the guest.
        timeout_s: seconds for everything. Booting and powering off take two or three.
        memory_mib: the guest's memory. The machine gives only what the guest uses.
        env: more variables of the command. None are inherited.
        disks: files inside `directory` that the guest sees as `/dev/ubda`, `/dev/ubdb`, and so on.
        modules: modules of the kernel to load, each after those that it needs, such as `QUOTA`.
        systemd: the first process is the machine's systemd, and the command is a unit.

    Raises:
        NoProgram: if user-mode Linux cannot run here; the message says why.
        TimeoutError: if the command does not end in time; holds what it printed.
        GuestFailed: if the guest ends without an exit code of the command, such as by a panic.
    """
    kernel = found("linux.uml") or downloaded("linux.uml", "user-mode-linux")
    with tempfile.TemporaryDirectory(prefix="croupier-uml-") as scratch:
        own = Path(scratch)
        writable = [own, *([directory] if directory else [])]
        spec = {
            "command": list(map(str, command)),
            "env": {**without_avx(), **(env or {})},
            "cwd": str(REPO),
            "shown": list(map(str, SHOWN)),
            "writable": list(map(str, writable)),
            "modules": [str(module(kernel, name)) for name in modules],
            "own": scratch,
            "systemd": systemd,
        }
        (own / "spec").write_text(json.dumps(spec))
        (own / "output").touch()
        words = [*box_with(writable), *kernel_command(kernel, own, memory_mib, disks)]
        console = console_of(words, own, timeout_s)
        output = (own / "output").read_text(errors="replace")
        try:
            code = int((own / "code").read_text())
        except (OSError, ValueError):
            raise GuestFailed(f"no exit code\n{output}\n{console}") from None
        return Ended(code, output, console)


def module(kernel: Path, name: str) -> Path:
    """Return the file of a module of the kernel.

    Raises:
        NoProgram: if the kernel's package does not hold it.
    """
    folder = kernel.resolve().parents[1] / "lib/uml/modules"
    for file in folder.glob(f"*/kernel/**/{name}.ko"):
        return file
    raise NoProgram(f"{folder} has no module {name}")


def kernel_command(
    kernel: Path, own: Path, memory_mib: int, disks: Sequence[Path]
) -> list[str | Path]:
    """Return the command line of the guest's kernel."""
    return [
        kernel,
        f"uml_dir={own}/",
        "umid=guest",
        f"mem={memory_mib}M",
        *(f"ubd{number}={path}" for number, path in enumerate(disks)),
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "quiet",
        "selinux=0",
        "con=null",
        "con0=null,fd:1",
        # Unknown parameters become variables of the first process.
        *(f"{name}={value}" for name, value in without_avx().items()),
        f"init={sys.executable}",
        "--",
        INIT,
        own / "spec",
    ]


def console_of(words: Sequence[str | Path], own: Path, timeout_s: float) -> str:
    """Run the kernel to its end and return its messages.

    Raises:
        TimeoutError: if it takes longer; the kernel is killed.
    """
    # A group of its own, because a kernel without a box leaves processes behind when killed.
    process = subprocess.Popen(
        words,
        cwd="/",
        env={"PATH": os.defpath, "HOME": str(own), "TMPDIR": memory_directory(own)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=refuse_xstate if has_amx() else None,
    )
    late = False
    try:
        printed, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        late = True
    finally:
        # Also after an interrupt of the test.
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
    console = printed.decode(errors="replace").replace("\r\n", "\n")
    if late:
        output = (own / "output").read_text(errors="replace")
        raise TimeoutError(f"no end after {timeout_s:g} s\n{output}\n{console}")
    return console


def memory_directory(own: Path) -> str:
    """Return the directory of the file that is the guest's memory, which must allow execution."""
    return "/dev/shm" if read_only_box() else str(own)


def box_with(writable: Sequence[Path]) -> list[str]:
    """Return the command prefix that makes everything but `writable` read-only."""
    if not read_only_box():
        return []
    binds = [word for path in writable for word in ("--bind", str(path), str(path))]
    return [*read_only_box(), *binds]


@functools.cache
def read_only_box() -> tuple[str, ...]:
    """Return the command prefix that makes everything read-only; `--bind` adds exceptions.

    An ordinary user gets none where the machine does not allow user namespaces. The guest then
    mounts everything read-only, but its root could undo that, for the files of this user.

    Raises:
        NoProgram: if there is none for root.
    """
    bwrap = str(found("bwrap") or downloaded("bwrap", "bubblewrap"))
    box = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/dev/shm"]
    box += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--die-with-parent"]
    box += ["--cap-drop", "ALL"]
    tried = subprocess.run([*box, "true"], capture_output=True, text=True, timeout=30)
    if tried.returncode == 0:
        return tuple(box)
    if os.geteuid() == 0:
        raise NoProgram(f"bwrap cannot protect the machine from a guest: {tried.stderr.strip()}")
    return ()


@functools.cache
def has_amx() -> bool:
    """Return whether the state of this processor is larger than the kernel of a guest knows."""
    return " amx_tile" in Path("/proc/cpuinfo").read_text()


def without_avx() -> Mapping[str, str]:
    """Return variables for the programs of a guest; none where AVX works."""
    return NO_AVX if has_amx() else {}


def refuse_xstate() -> None:
    """Apply `NO_XSTATE` to this process and those that it starts.

    Raises:
        OSError: if the machine does not permit that.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    filtered = ctypes.create_string_buffer(NO_XSTATE)
    program = struct.pack("HxxxxxxP", len(NO_XSTATE) // 8, ctypes.addressof(filtered))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the filter for AMX is refused")


def main() -> None:
    """Run the command of the arguments in a guest, and exit as it does."""
    ended = run_in_uml(sys.argv[1:], timeout_s=600.0)
    print(ended.output, end="")
    sys.exit(ended.code if ended.code >= 0 else 128 - ended.code)


if __name__ == "__main__":
    main()
