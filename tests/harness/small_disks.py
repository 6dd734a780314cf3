"""Small disks of daemons, each in a mount namespace of its own, which tests can fill."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

from tests.harness.debian import NoProgram, unavailable

_BLOCK = b"\0" * 65536


def on_small_disk(folder: Path, size: str) -> tuple[str, ...]:
    """Return the prefix of a command that runs with an empty disk at `folder`.

    The test is skipped, or fails in CI, where mounts are not permitted.

    Arguments:
        folder: is made.
        size: such as `16m`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mount = f"mount -t tmpfs -o size={size} croupier-test {folder}"
    unshare = ("unshare", "-m", "--propagation", "private")
    prefix = (*unshare, "sh", "-c", f'{mount} && exec "$@"', "sh")
    done = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    if done.returncode:
        unavailable(NoProgram(f"cannot mount a small disk: {done.stderr.decode().strip()}"))
    return prefix


def seen_by(pid: int, path: Path) -> Path:
    """Return a path by which this process reaches `path` of the process `pid`."""
    return Path(f"/proc/{pid}/root{path}")


def beside(pid: int) -> list[int]:
    """Return the processes that see the same disks as the process `pid`, itself among them."""
    mounts = Path(f"/proc/{pid}/ns/mnt").readlink()
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        # Of processes that end meanwhile.
        with suppress(OSError):
            if (each / "ns/mnt").readlink() == mounts:
                found.append(int(each.name))
    return found


def fill(folder: Path, size: int | None = None) -> None:
    """Fill the disk of `folder`, or write so many bytes; `make_room` removes them."""
    left = size
    with suppress(OSError), (folder / "ballast").open("ab", buffering=0) as ballast:
        while left is None or left > 0:
            ballast.write(_BLOCK)
            left = None if left is None else left - len(_BLOCK)


def make_room(folder: Path) -> None:
    """Remove what `fill` wrote."""
    (folder / "ballast").unlink(missing_ok=True)
