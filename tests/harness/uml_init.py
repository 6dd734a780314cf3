"""The first process of a guest: prepares it, runs one command, and powers off.

It runs without the project's packages, from one file: `python uml_init.py SPEC`.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import sys
from importlib import import_module
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
READ_ONLY = 1
POWER_OFF = 0x4321FEDC
FINIT_MODULE = 313  # the system call on x86-64, the only machine of user-mode Linux
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
HIDDEN = ("/tmp", "/run", "/var/tmp", "/dev/shm")
CGROUPS = Path("/sys/fs/cgroup")
ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def mount(kind: str, where: str, flags: int = 0, data: str = "") -> None:
    """Mount a file system of `kind` at `where`, which is made if possible.

    Raises:
        OSError: if that fails.
    """
    if not Path(where).is_dir():
        Path(where).mkdir(parents=True)
    if LIBC.mount(kind.encode(), where.encode(), kind.encode(), flags, data.encode()):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), where)


def mount_all(spec: dict[str, list[str]]) -> None:
    """Mount what a Linux system has, and the directories that `spec` names."""
    mount("proc", "/proc")
    mount("sysfs", "/sys")
    mount("devpts", "/dev/pts", data="ptmxmode=666")
    mount("cgroup2", str(CGROUPS))
    for place in HIDDEN:
        mount("tmpfs", place, data="mode=1777")
    for path in spec["shown"]:
        if not Path(path).is_dir():
            mount("hostfs", path, READ_ONLY, path)
    for path in spec["writable"]:
        mount("hostfs", path, data=path)


def load(module: str) -> None:
    """Load a module of the kernel.

    Raises:
        OSError: if that fails.
    """
    with Path(module).open("rb") as file:
        if LIBC.syscall(FINIT_MODULE, file.fileno(), b"", 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), module)


def enable_controllers() -> None:
    """Enable every controller below the root of the cgroups, as systemd does."""
    for controller in (CGROUPS / "cgroup.controllers").read_text().split():
        (CGROUPS / "cgroup.subtree_control").write_text(f"+{controller}")


def loopback_up() -> None:
    """Bring up the loopback interface, which gives it 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", request)[1] | IFF_UP
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags))


def run(command: list[str], env: dict[str, str], cwd: str, output: str) -> int:
    """Run `command` to its end, and return its exit code or negative signal."""
    # Written through: a guest that is killed at its deadline has no time to.
    written = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_SYNC)
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.chdir(cwd)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(written, 1)
            os.dup2(written, 2)
            os.closerange(3, 256)
            os.execvpe(command[0], command, ENV | env)
        except OSError as error:
            os.write(2, f"{command[0]}: {error}\n".encode())
        finally:
            os._exit(127)
    while True:
        # The first process inherits every orphan.
        ended, status = os.wait()
        if ended == child:
            return os.waitstatus_to_exitcode(status)


def main() -> None:
    """Run the command of the file that is the only argument, and leave its exit code."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    mount_all(spec)
    for module in spec["modules"]:
        load(module)
    enable_controllers()
    loopback_up()
    socket.sethostname("guest")
    if spec["systemd"]:
        # Beside this file, from which Python runs it.
        uml_systemd = import_module("uml_systemd")
        uml_systemd.prepare(mount)
        uml_systemd.boot(spec, ENV | spec["env"])
    own = Path(spec["own"])
    code = run(spec["command"], spec["env"], spec["cwd"], str(own / "output"))
    (own / "code").write_text(str(code))
    os.sync()


if __name__ == "__main__":
    try:
        main()
    except BaseException as reason:
        print(f"init: {reason!r}", flush=True)
    LIBC.reboot(POWER_OFF)
