"""The OCI runtime of an agent, the first of runc and crun that works here, and its `config.json`.

What a container gets: mount, process, IPC and host name namespaces of its own, and a network
namespace if its task asks for none; no capabilities, no new privileges, a filter of system calls;
a root directory that it cannot write to; its sandbox, at the same path as outside and writable;
tmpfs on /tmp and /dev/shm; the standard devices. Its control groups are those of its task.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from croupier.agent.isolation.image_tools import find_tool
from croupier.agent.isolation.seccomp import is_supported, oci_profile
from croupier.agent.shim.build import provide
from croupier.agent.shim.compiling import STATIC
from croupier.model.errors import Unavailable

# Where the program that starts the task is inside the container.
INIT: Final = "/.croupier-init"
TMP_SIZE: Final = "256m"
SHM_SIZE: Final = "64m"
DEFAULT_UMASK: Final = 0o022
# RLIMIT_OFILE is an older name that runtimes do not know.
_LIMITS: Final = {
    getattr(resource, name): name
    for name in dir(resource)
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
}
_MASKED: Final = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats"),
    "/sys/firmware",
)
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_PRIVATE: Final = ("nosuid", "nodev")
NAMES: Final = ("runc", "crun")
PROBE_S: Final = 10.0
_SOURCE: Final = Path(__file__).with_name("container.c")
_VERSION: Final = b"croupier-container 1\n"


@dataclass(frozen=True, slots=True)
class Contents:
    """The command, mounts and rights of a container.

    Attributes:
        directory: of the run, with `config.json`; its file system is at `mount/root`.
        program: `container.c`, compiled.
        mark: the variable that marks processes of the run.
        uid: as in the container; 0 is the agent's own account if that is not root.
        options: of the shim; only umask and limits count here.
        read_only: further directories to show at the same path.
        shared: further directories that it may write to.
    """

    directory: Path
    program: Path
    argv: tuple[str, ...]
    sandbox: str = ""
    mark: str = ""
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    has_network: bool = True
    read_only: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


def configuration(contents: Contents) -> dict[str, Any]:
    """Return the content of `config.json`."""
    root = str(contents.directory / "mount/root")
    kinds = ("mount", "pid", "ipc", "uts", *(() if contents.has_network else ("network",)))
    linux: dict[str, Any] = {
        "namespaces": [{"type": kind} for kind in kinds],
        "maskedPaths": list(_MASKED),
        "readonlyPaths": list(_READ_ONLY),
    }
    if is_supported():
        linux["seccomp"] = oci_profile()
    return {
        "ociVersion": "1.0.2",
        "hostname": socket.gethostname()[:64] or "task",
        "process": _process(contents),
        # `container protect` makes it read-only; see container.c.
        "root": {"path": root, "readonly": False},
        "mounts": list(_mounts(contents)),
        "hooks": {
            "createContainer": [
                {"path": str(contents.program), "args": ["container", "protect", root]}
            ]
        },
        "linux": linux,
    }


def command(runtime: tuple[str, ...], contents: Contents, root: Path, name: str) -> tuple[str, ...]:
    """Return the words that start a container whose file system is `root`."""
    mount = contents.directory / "mount"
    return (
        *(str(contents.program), "run", str(mount), str(root), "--"),
        *(*runtime, "--root", str(mount / "state"), "--log", str(contents.directory / "log")),
        *("run", "--detach", "--bundle", str(contents.directory)),
        *("--pid-file", str(mount / "pid"), "--preserve-fds", "1", "--no-new-keyring", name),
    )


def merged_environment(
    image: Iterable[tuple[str, str]],
    given: Mapping[str, str],
    own: Mapping[str, str],
    defaults: Iterable[str],
) -> dict[str, str]:
    """Return the variables of a task: its own, then the agent's, then the image's.

    The agent gives a task those in `given`, which include its own. It takes `defaults` from its
    own environment: the image's replace them.
    """
    from_image = dict(image)
    replaced = {name for name in defaults if name in from_image and name not in own}
    kept = {name: value for name, value in given.items() if name not in replaced}
    return from_image | kept


def _process(contents: Contents) -> dict[str, Any]:
    none: list[str] = []
    sets = ("bounding", "effective", "inheritable", "permitted", "ambient")
    user: dict[str, Any] = {"uid": contents.uid, "gid": contents.gid}
    if contents.groups:
        user["additionalGids"] = list(contents.groups)
    masks = [each.removeprefix("umask=") for each in contents.options if each.startswith("umask=")]
    user["umask"] = int(masks[-1], 8) if masks else DEFAULT_UMASK
    return {
        "terminal": False,
        "user": user,
        "args": [INIT, "init", "--", *contents.argv],
        # The task's own variables come through a file in memory, because some are secret.
        "env": [contents.mark] if contents.mark else [],
        "cwd": contents.sandbox or "/",
        "capabilities": dict.fromkeys(sets, none),
        "noNewPrivileges": True,
        "rlimits": list(_limits(contents.options)),
    }


def _limits(options: Iterable[str]) -> Iterable[dict[str, Any]]:
    """Return the limits of the shim's options, which the runtime's own may have replaced.

    As in the shim, none is above the present hard limit, which few may raise.
    """
    for option in options:
        name, _, text = option.partition("=")
        if name == "limit":
            number, soft, hard = text.split(":")
            known = _LIMITS.get(int(number))
            if known:
                present = resource.getrlimit(int(number))[1]
                most = int(hard) if present < 0 else min(int(hard), present)
                yield {"type": known, "soft": min(int(soft), most), "hard": most}


def _mounts(contents: Contents) -> Iterable[dict[str, Any]]:
    yield _mount("/proc", "proc", *_PRIVATE, "noexec")
    yield _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=64k")
    pts = ("newinstance", "ptmxmode=0666", "mode=0620")
    yield _mount("/dev/pts", "devpts", "nosuid", "noexec", *pts)
    yield _mount("/dev/mqueue", "mqueue", *_PRIVATE, "noexec")
    shm = ("mode=1777", f"size={SHM_SIZE}")
    yield _mount("/dev/shm", "tmpfs", *_PRIVATE, "noexec", *shm)  # noqa: S108 - inside
    if os.geteuid() == 0 or not contents.has_network:
        yield _mount("/sys", "sysfs", *_PRIVATE, "noexec", "ro")
    else:
        # The kernel lets only the owner of the network mount it anew.
        yield _bind("/sys", "/sys", "ro", recursive=True)
    yield _mount("/tmp", "tmpfs", *_PRIVATE, "mode=1777", f"size={TMP_SIZE}")  # noqa: S108 - inside
    if contents.has_network:
        for path in ("/etc/resolv.conf", "/etc/hosts"):
            # Often a link to a file that a service writes.
            source = os.path.realpath(path)
            if Path(source).is_file():
                yield _bind(source, path, "ro")
    yield _bind(str(contents.program), INIT, "ro")
    for path in contents.read_only:
        yield _bind(path, path, "ro")
    for path in filter(None, (contents.sandbox, *contents.shared)):
        yield _bind(path, path, "rw")


def _mount(path: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": path, "type": kind, "source": kind, "options": list(options)}


def _bind(source: str, path: str, access: str, *, recursive: bool = False) -> dict[str, Any]:
    options = ["rbind" if recursive else "bind", access, *_PRIVATE]
    return {"destination": path, "type": "bind", "source": source, "options": options}


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that works, with its options, and the compiled `container.c`."""

    words: tuple[str, ...]
    program: Path


def build_program(directory: Path) -> Path:
    """Return the compiled `container.c`, after 20 s at most; raises Unavailable if that fails."""
    # Containers of tasks use older ones until they end. It also runs inside images, which have no
    # libraries of this machine.
    try:
        return provide(directory, _SOURCE, _VERSION, (STATIC,))
    except Unavailable as error:
        text = f"no container can be started without a static C program: {error}"
        raise Unavailable(text) from error


def find_runtime(directory: Path, given: str = "") -> Runtime:
    """Return the runtime `given`, or the first of `NAMES` that starts a container, in 50 s.

    `directory`, below the work dir, is for the compiled program and for trials. Raises Unavailable,
    with the reason of each, if there is none.
    """
    names = (given,) if given else NAMES
    found = {name: path for name in names if (path := find_tool(name))}
    reasons = [f"{name} is not installed" for name in names if name not in found]
    if not found:
        raise Unavailable("; ".join(reasons))
    program = build_program(directory)
    for path in found.values():
        runtime = Runtime((path, *_options(path)), program)
        why = _try(runtime, directory)
        if not why:
            return runtime
        reasons.append(f"{path}: {why}")
    raise Unavailable("; ".join(reasons))


def _options(path: str) -> tuple[str, ...]:
    """Return the options by which a runtime leaves control groups alone."""
    if "crun" in Path(path).name:
        return ("--cgroup-manager=disabled",)
    # As root it would insist on groups of its own, which are read-only where it runs.
    return ("--rootless=true",) if os.geteuid() == 0 else ()


def _try(runtime: Runtime, directory: Path) -> str:
    """Start a container that prints the version of its program; return an error, or nothing."""
    with tempfile.TemporaryDirectory(prefix="trial-", dir=directory) as scratch:
        place = Path(scratch).resolve()
        (place / "mount").mkdir()
        root = place / "empty"
        root.mkdir()
        contents = Contents(place, runtime.program, (INIT,), has_network=False)
        (place / "config.json").write_text(json.dumps(configuration(contents)))
        process = subprocess.Popen(
            command(runtime.words, contents, root, place.name),
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=PROBE_S)
        except subprocess.TimeoutExpired:
            # It leads its group, and is not reaped yet. The container ends with its runtime.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"no container starts within {PROBE_S:g} s"
    if output == _VERSION and not process.returncode:
        return ""
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1][-300:] if lines else f"it ends with code {process.returncode}"
