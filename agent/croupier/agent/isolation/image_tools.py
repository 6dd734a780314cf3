"""Names of images, and the tools that fetch them: skopeo copies an image, umoci unpacks it.

An image is of a registry, of an OCI layout on this machine, or a root directory. Both tools check
the digest of every part. umoci keeps every path of a layer within the root directory.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from croupier.agent.directories import open_beneath
from croupier.model.errors import InvalidRequest, NotFound, Unavailable

_DOCKER: Final = "docker://"
_OCI: Final = "oci:"
_DIR: Final = "dir:"
MAX_JSON: Final = 4 * 1024 * 1024
# Where tools are, beside PATH: that of a service or an ordinary user may lack them.
PLACES: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64"}
_POLICIES: Final = ("~/.config/containers/policy.json", "/etc/containers/policy.json")
_WATCH_S: Final = 1.0
_LAST_BYTES: Final = 4096
_MESSAGE: Final = re.compile(r'msg="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class ImageName:
    """The name of an image, as its task gives it; no `path` in a registry, a `tag` in a layout."""

    text: str
    path: Path | None = None
    tag: str = ""

    @property
    def is_directory(self) -> bool:
        """Whether it is a root directory, which is used in place."""
        return self.path is not None and not self.tag

    def source(self) -> str:
        """Return what identifies a layout's content, empty for a registry; raises NotFound."""
        if self.path is None or self.is_directory:
            return ""
        index = read_json(self.path / "index.json", f"image {self.text}")
        for each in index.get("manifests") or ():
            named = (each.get("annotations") or {}).get("org.opencontainers.image.ref.name")
            if named == self.tag:
                return str(each.get("digest"))
        raise NotFound(f"image {self.text}: the layout has no tag {self.tag}")


def parse_image(text: str, roots: tuple[Path, ...]) -> ImageName:
    """Read the name of an image. Files of this machine must be below one of `roots`.

    Raises InvalidRequest if the name is malformed, or its path is not allowed or leads over a link.
    """
    if text.startswith(_DOCKER):
        return ImageName(text)
    if text.startswith(_OCI):
        path, _, tag = text.removeprefix(_OCI).rpartition(":")
        if not path or not tag or "/" in tag:
            raise InvalidRequest(f"image {text}: give oci:PATH:TAG")
        return ImageName(text, _allowed(text, path, roots), tag)
    if text.startswith(_DIR):
        return ImageName(text, _allowed(text, text.removeprefix(_DIR), roots))
    raise InvalidRequest(f"image {text}: give docker://NAME, oci:PATH:TAG or dir:PATH")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a small JSON file; raises NotFound, which begins with `what`, if there is none."""
    try:
        with os.fdopen(open_beneath(path, os.O_RDONLY), "rb") as file:
            text = file.read(MAX_JSON + 1)
        found = json.loads(text) if len(text) <= MAX_JSON else None
    except OSError as error:
        raise NotFound(f"{what}: {path.name}: {error.strerror}") from error
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise NotFound(f"{what}: {path.name} is damaged")
    return found


def _allowed(text: str, path: str, roots: tuple[Path, ...]) -> Path:
    found = Path(path)
    if not found.is_absolute() or os.path.normpath(path) != path.rstrip("/"):
        raise InvalidRequest(f"image {text}: its path is not absolute and plain")
    real = [Path(os.path.realpath(root)) for root in roots]
    # A link may lead out of the allowed directories, or be changed after this check.
    if not any(found.is_relative_to(root) for root in (*roots, *real)):
        raise InvalidRequest(f"image {text}: it is in no directory of the agent's --image-roots")
    target = Path(os.path.realpath(found))
    if not any(target.is_relative_to(root) for root in real):
        raise InvalidRequest(f"image {text}: a link leads out of the agent's --image-roots")
    if not target.is_dir():
        raise InvalidRequest(f"image {text}: there is no such directory on this agent")
    return target


def find_tool(name: str) -> str:
    """Return the path of a tool, or an empty text."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *PLACES])
    return shutil.which(name, path=path) or ""


def architecture() -> str:
    """Return the architecture of this machine, by its name in images."""
    return ARCHITECTURES.get(platform.machine(), platform.machine())


@dataclass(frozen=True, slots=True)
class ImageTools:
    """Runs the tools. Each call blocks, for `deadline_s` at most, or until `stop` is set."""

    skopeo: str
    umoci: str
    deadline_s: float
    stop: threading.Event

    @property
    def missing(self) -> str:
        """The tools that are not installed; empty if both are."""
        have = {"skopeo": self.skopeo, "umoci": self.umoci}
        return " and ".join(name for name, path in have.items() if not path)

    def copy(self, name: ImageName, layout: Path, check: Callable[[], None]) -> None:
        """Copy an image of this machine's platform into a new OCI layout, as tag `image`.

        Raises Unavailable if that fails, or `check`, called each second, raises it.
        """
        source = name.text if name.path is None else f"oci:{name.path}:{name.tag}"
        policy = any(Path(path).expanduser().exists() for path in _POLICIES)
        words = [
            self.skopeo,
            *(() if policy else ("--insecure-policy",)),
            *(f"--override-arch={architecture()}", "--override-os=linux"),
            *("copy", "--quiet", "--remove-signatures", source, f"oci:{layout}:image"),
        ]
        self._run(words, layout.parent, check)

    def unpack(self, layout: Path, root: Path, check: Callable[[], None]) -> None:
        """Unpack the image of a layout to a new directory, without devices and foreign owners.

        Raises Unavailable if that fails, or `check`, called each second, raises it.
        """
        words = [self.umoci, "raw", "unpack", "--rootless", f"--image={layout}:image", str(root)]
        self._run(words, layout.parent, check)

    def _run(self, words: Sequence[str], directory: Path, check: Callable[[], None]) -> None:
        # An agent's own settings and credentials are no matter of the tools.
        own = {n: v for n, v in os.environ.items() if not n.startswith("CROUPIER_")}
        environment = own | {"TMPDIR": str(directory), "LC_ALL": "C"}
        # A file, not a pipe: nothing has to read it while the tool runs.
        with tempfile.TemporaryFile(dir=directory) as output:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )
            try:
                self._wait(process, check)
            finally:
                if process.poll() is None:
                    # It leads its group, and is not reaped yet.
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if process.returncode:
                output.seek(0, os.SEEK_END)
                output.seek(max(0, output.tell() - _LAST_BYTES))
                raise Unavailable(_why(words[0], output.read().decode(errors="replace")))

    def _wait(self, process: subprocess.Popen[bytes], check: Callable[[], None]) -> None:
        until = time.monotonic() + self.deadline_s
        while True:
            try:
                process.wait(_WATCH_S)
            except subprocess.TimeoutExpired:
                check()
            else:
                return
            if self.stop.is_set():
                raise Unavailable("the agent stops")
            if time.monotonic() >= until:
                raise Unavailable(f"it takes longer than {self.deadline_s:g} s")


def size_of(path: Path) -> int:
    """Return the bytes that a directory takes on disk; 0 if that is unknown. Blocks."""
    # A tree may be deeper than a path may be long, which `du` can handle.
    try:
        done = subprocess.run(["du", "-skx", str(path)], capture_output=True, text=True, timeout=60)
        return int(done.stdout.split()[0]) * 1024
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return 0


def remove(path: Path) -> None:
    """Remove a directory tree; what cannot be removed stays. Blocks."""
    for words in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        if not os.path.lexists(path):
            return
        subprocess.run([*words, "--", str(path)], capture_output=True, timeout=600)


def _why(tool: str, output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return f"{Path(tool).name} failed"
    found = _MESSAGE.search(lines[-1])
    text = found[1].replace('\\"', '"') if found else lines[-1]
    return text[-500:]
