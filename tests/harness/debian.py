"""Programs that tests need, unpacked from Debian packages without installing them.

A program is taken from PATH, from `.venv/tools` of an earlier run, or from the package. Libraries
that the machine does not have are unpacked beside it, and a script sets the path to them. Without
the program the test is skipped with the reason. In CI it fails, because a check that never runs
proves nothing.

python3 -m tests.harness.debian    fetches all programs; needs no package of Python
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

KEPT = Path(__file__).resolve().parents[2] / ".venv/tools"
DOWNLOAD_S = 90

# The Debian package of each program that tests use.
PACKAGES = {
    "chromium-headless-shell": "chromium-headless-shell",
    "etcd": "etcd-server",
    "bwrap": "bubblewrap",
    "busybox": "busybox-static",
    "fish": "fish",
    "linux.uml": "user-mode-linux",
    "mkfs.ext4": "e2fsprogs",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "runc": "runc",
    "skopeo": "skopeo",
    "umoci": "umoci",
    "zsh": "zsh",
}
# Packages with files that a program opens beside its own.
COMPANIONS = {"chromium-headless-shell": ("chromium-common",)}
# PATH of an ordinary user often lacks sbin. Chromium's own folder comes first: what is in usr/bin
# is a script that names the installed program.
PLACES = ("usr/lib/chromium", "usr/bin", "bin", "usr/sbin", "sbin")


class NoProgram(Exception):
    """The program is not available; the message says why."""


def program(name: str, package: str | None = None) -> Path:
    """Return the path of the program; skip the test, or fail it in CI, without it.

    Arguments:
        name: the program, such as `bwrap`.
        package: Debian's package, by default that in `PACKAGES`.
    """
    try:
        return found(name) or downloaded(name, package or PACKAGES[name])
    except NoProgram as reason:
        unavailable(reason)


def unavailable(reason: NoProgram) -> NoReturn:
    """Skip the test because of `reason`, or fail it in CI."""
    # `python3 -m tests.harness.debian` has no pytest yet.
    import pytest

    if os.environ.get("CI"):
        pytest.fail(str(reason))
    pytest.skip(str(reason))


def found(name: str) -> Path | None:
    """Return the path of a program that is already present."""
    path = [os.environ.get("PATH", os.defpath), *(f"/{place}" for place in PLACES)]
    on_path = shutil.which(name, path=os.pathsep.join(path))
    if on_path:
        return Path(on_path)
    kept = KEPT / name
    return kept if os.access(kept, os.X_OK) else None


def downloaded(name: str, package: str) -> Path:
    """Unpack the program from Debian's `package` and keep it for the next run.

    Raises:
        NoProgram: if this is not Debian, or the package cannot be downloaded.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NoProgram(f"{name} is not on PATH, and there is no apt-get to fetch it with")
    whole = KEPT / "trees" / package
    whole.parent.mkdir(parents=True, exist_ok=True)
    with locked(whole.with_suffix(".lock")):
        # Another process may have fetched it meanwhile.
        if not os.access(KEPT / name, os.X_OK):
            with tempfile.TemporaryDirectory(dir=KEPT, prefix=f"{package}.") as half:
                if not whole.is_dir():
                    fetch(name, package, Path(half) / "tree")
                    (Path(half) / "tree").rename(whole)
                entry = Path(half) / name
                make_entry(entry, binary(name, whole), whole)
                entry.rename(KEPT / name)
    return KEPT / name


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the only process that fetches a package.

    Raises:
        NoProgram: if another one takes too long.
    """
    deadline = time.monotonic() + DOWNLOAD_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    reason = f"{path.stem} cannot be fetched: another process is still at it"
                    raise NoProgram(reason) from None
                time.sleep(0.1)
        yield


def fetch(name: str, package: str, tree: Path) -> None:
    """Unpack `package` into a new folder, with the libraries that the machine does not have.

    Raises:
        NoProgram: if that fails.
    """
    tree.mkdir()
    for part in (package, *COMPANIONS.get(name, ())):
        unpack(name, part, tree)
    if libraries_missing(binary(name, tree)):
        for library in libraries(name, package):
            unpack(name, library, tree)
    if still := libraries_missing(binary(name, tree), tree):
        raise NoProgram(f"{name} cannot be fetched: there is no {', '.join(still)}")


def binary(name: str, tree: Path) -> Path:
    """Return the program's file in an unpacked tree.

    Raises:
        NoProgram: if the tree has no such program.
    """
    for place in PLACES:
        if (tree / place / name).is_file():
            return tree / place / name
    raise NoProgram(f"{name} cannot be fetched: its package does not hold it")


def make_entry(entry: Path, file: Path, tree: Path) -> None:
    """Make `entry` run the program `file`: a link, or a script that sets the path of libraries."""
    if not libraries_missing(file):
        entry.symlink_to(file)
        return
    path = library_path(tree)
    entry.write_text(
        f'#!/bin/sh\nLD_LIBRARY_PATH={shlex.quote(path)} exec {shlex.quote(str(file))} "$@"\n'
    )
    entry.chmod(0o755)


def library_path(tree: Path) -> str:
    """Return the folders of an unpacked tree that hold shared libraries, joined by colons."""
    depths = ("lib/*/*.so*", "usr/lib/*/*.so*", "usr/lib/*-linux-*/*/*.so*")
    folders = {file.parent for depth in depths for file in tree.glob(depth)}
    return ":".join(sorted(map(str, folders)))


def libraries_missing(file: Path, tree: Path | None = None) -> list[str]:
    """Return the shared libraries that `file` needs and the machine, or `tree`, does not have."""
    env = dict(os.environ)
    if tree:
        env["LD_LIBRARY_PATH"] = library_path(tree)
    # It fails for a static program, which needs none.
    asked = subprocess.run(["ldd", str(file)], capture_output=True, text=True, env=env, timeout=30)
    return [line.split()[0] for line in asked.stdout.splitlines() if line.endswith("not found")]


def libraries(name: str, package: str) -> list[str]:
    """Return the packages of libraries that `package` needs and the machine does not have.

    Raises:
        NoProgram: if apt cannot tell.
    """
    # A simulation needs no root, and leaves out what is installed.
    simulated = ["apt-get", "--simulate", "--no-install-recommends", "install", package]
    lines = run_or_say(name, simulated, "/").splitlines()
    installed = [line.split()[1] for line in lines if line.startswith("Inst ")]
    return [other for other in installed if other.startswith("lib")]


def unpack(name: str, package: str, tree: Path) -> None:
    """Download Debian's `package` and unpack it into `tree`.

    Raises:
        NoProgram: if that fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        archive = archive_of(name, package, Path(scratch))
        run_or_say(name, ["dpkg-deb", "-x", str(archive), str(tree)], scratch)
    # The package's root replaces the directory's own permissions.
    tree.chmod(0o755)


def archive_of(name: str, package: str, scratch: Path) -> Path:
    """Download Debian's `package` into `scratch`.

    Raises:
        NoProgram: if that fails.
    """
    # apt drops root for the download and must be able to write there.
    scratch.chmod(0o777)
    download = ["apt-get", "download", package]
    try:
        run_or_say(name, download, str(scratch))
    except NoProgram:
        if os.geteuid() != 0:
            raise
        run_or_say(name, ["apt-get", "update", "--quiet"], str(scratch))
        run_or_say(name, download, str(scratch))
    return next(scratch.glob(f"{package}_*.deb"))


def run_or_say(name: str, command: list[str], directory: str) -> str:
    """Run `command` in `directory` and return what it prints.

    Raises:
        NoProgram: if it fails or takes too long.
    """
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=DOWNLOAD_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoProgram(f"{name} cannot be fetched: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NoProgram(f"{name} cannot be fetched: {' '.join(command[:2])}: {last}")
    return done.stdout


def main() -> int:
    """Fetch all programs, and say which cannot be fetched."""
    code = 0
    for name, package in PACKAGES.items():
        try:
            if found(name) is None:
                downloaded(name, package)
        except NoProgram as reason:
            print(reason, file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
