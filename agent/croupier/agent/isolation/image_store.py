"""The images that an agent has fetched: WORK_DIR/images.

    refs/HASH          which image a name meant when it was fetched
    roots/DIGEST/root  the unpacked image, with image.json beside it
    pulling/, removed/ what is being made or removed

Rule: a directory in `roots` is complete, because it is made elsewhere and renamed, and it is never
changed. A name of a registry means the image that was fetched first for as long as that is kept,
so a task that must run a certain image names it by digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from croupier.agent.isolation.image_tools import (
    ImageName,
    ImageTools,
    architecture,
    read_json,
    remove,
    size_of,
)
from croupier.model.errors import CroupierError, NotFound, Unavailable
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

# An image that a task is about to use is not removed.
SPARED_S: Final = 120.0
MAX_ENVIRONMENT: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Image:
    """The root directory, without links, of an image here; no `digest` if it is an operator's."""

    root: Path
    digest: str = ""
    environment: tuple[tuple[str, str], ...] = ()


class ImageStore:
    """The images of one agent. All calls but `pull` and `clean` take well under 1 ms."""

    def __init__(self, directory: Path, tools: ImageTools, most_bytes: int, uses: Path) -> None:
        """Keep at most `most_bytes` in `directory`.

        Each directory in `uses` is of a run, whose file `image` names the digest that it uses.
        """
        self._directory, self._tools, self._most = directory, tools, most_bytes
        self._uses = uses
        # Held while an image is chosen for removal, and while a run takes one.
        self._lock = threading.Lock()

    def find(self, name: ImageName) -> Image | None:
        """Return the image if it is on this machine; raises NotFound if the layout is unusable."""
        if name.is_directory:
            assert name.path is not None
            return Image(name.path)
        try:
            digest = str(read_json(self._reference(name), "reference").get("digest"))
            image = self._image(digest)
            os.utime(image.root.with_name("image.json"))
        except (NotFound, OSError):
            # An image that was removed leaves its reference.
            name.source()
            return None
        return image

    def use(self, name: ImageName, run: str) -> Image | None:
        """Return the image and keep it until the directory of the run is removed; None: pull it.

        Raises:
            NotFound: as `find` does.
            OSError: if the use cannot be noted.
        """
        with self._lock:
            image = self.find(name)
            if image is not None:
                (self._uses / run / "image").write_text(image.digest)
            return image

    def pull(self, name: ImageName) -> None:
        """Fetch and unpack an image for `find`; blocks for minutes. Raises CroupierError."""
        began = time.monotonic()
        if self._tools.missing:
            raise Unavailable(f"{self._tools.missing} is not installed on this agent")
        half = self._directory / "pulling" / secrets.token_hex(8)
        try:
            half.mkdir(mode=0o700, parents=True)
            # A layout may have other content before the pull ends.
            source = name.source()
            digest, size = self._make(name, source, half)
            self._keep(name, source, half, digest)
        except OSError as error:
            raise Unavailable(f"{error.filename or self._directory}: {error.strerror}") from error
        finally:
            remove(half)
        seconds = round(time.monotonic() - began, 3)
        _log.info("image_pulled", image=name.text, digest=digest, bytes=size, seconds=seconds)

    def stop(self) -> None:
        """End the pulls that run; the agent stops."""
        self._tools.stop.set()

    def clean(self) -> None:
        """Remove what an agent that was killed has left. Blocks."""
        for place in ("pulling", "removed"):
            remove(self._directory / place)
        for kept in self._kept():
            if not (kept / "image.json").is_file():
                remove(kept)

    def _make(self, name: ImageName, source: str, half: Path) -> tuple[str, int]:
        """Make the unpacked image in `half`; return its digest and size."""
        layout, tree = half / "layout", half / "tree"

        def check() -> None:
            if size_of(half) > self._most:
                raise Unavailable(f"it is larger than --image-cache ({self._most} bytes)")

        self._tools.copy(name, layout, check)
        digest, config = _described(layout)
        found = f"{config.get('os', 'linux')}/{config.get('architecture', '')}"
        if found != f"linux/{architecture()}":
            raise Unavailable(f"it is for {found}, and this machine is linux/{architecture()}")
        variables = _environment(config)
        tree.mkdir(mode=0o755)
        if not (self._directory / "roots" / digest / "image.json").exists():
            self._tools.unpack(layout, tree / "root", check)
            if not (tree / "root").is_dir():
                raise Unavailable("it has no files")
        remove(layout)
        size = size_of(tree)
        self._make_room(size, digest)
        facts = {"environment": variables, "size": size, "name": name.text, "source": source}
        (tree / "image.json").write_text(json.dumps(facts))
        # A power failure after the rename must not leave files without content.
        subprocess.run(["sync", "-f", str(tree)], capture_output=True, timeout=600)
        return digest, size

    def _keep(self, name: ImageName, source: str, half: Path, digest: str) -> None:
        """Move the unpacked image to its place, unless another pull was faster."""
        place = self._directory / "roots" / digest
        place.parent.mkdir(mode=0o700, exist_ok=True)
        reference = self._reference(name, source)
        reference.parent.mkdir(mode=0o700, exist_ok=True)
        with self._lock:
            if not (place / "image.json").exists():
                if not (half / "tree/root").is_dir():
                    raise Unavailable("it was removed while it was fetched again")
                (half / "tree").rename(place)
            made = half / "reference"
            made.write_text(json.dumps({"name": name.text, "digest": digest}))
            made.rename(reference)

    def _make_room(self, size: int, digest: str) -> None:
        """Remove the images that were not used for the longest time until `size` fits."""
        out = self._directory / "removed"
        out.mkdir(mode=0o700, exist_ok=True)
        with self._lock:
            kept = {each.name: _size(each) for each in self._kept() if each.name != digest}
            for name in self._unused(kept):
                if sum(kept.values()) + size <= self._most:
                    break
                (self._directory / "roots" / name).rename(out / secrets.token_hex(8))
                _log.info("image_removed", digest=name, bytes=kept.pop(name))
            total = sum(kept.values())
        for each in out.iterdir():
            remove(each)
        if total + size > self._most:
            raise Unavailable(
                f"it takes {size} bytes, and images in use take {total} of the"
                f" {self._most} bytes of --image-cache"
            )

    def _unused(self, names: Collection[str]) -> list[str]:
        """Return which images no run uses, the one unused for the longest time first."""
        used = set()
        for run in _entries(self._uses):
            with suppress(OSError):
                used.add((run / "image").read_text())
        times = {name: _last_used(self._directory / "roots" / name) for name in names}
        free = [name for name in names if name not in used and times[name] + SPARED_S < time.time()]
        return sorted(free, key=times.__getitem__)

    def _image(self, digest: str) -> Image:
        place = self._directory / "roots" / digest
        facts = read_json(place / "image.json", digest)
        pairs = (str(each).partition("=") for each in facts.get("environment") or ())
        return Image(place / "root", digest, tuple((name, value) for name, _, value in pairs))

    def _reference(self, name: ImageName, source: str | None = None) -> Path:
        meant = name.source() if source is None else source
        text = f"{name.text}\0{meant}".encode()
        return self._directory / "refs" / hashlib.sha256(text).hexdigest()

    def _kept(self) -> list[Path]:
        return _entries(self._directory / "roots")


def _described(layout: Path) -> tuple[str, dict[str, Any]]:
    """Return the digest and the configuration of the image that was copied to `layout`."""
    try:
        (listed,) = read_json(layout / "index.json", "it")["manifests"]
        manifest = read_json(_blob(layout, listed["digest"]), "its manifest")
        config = read_json(_blob(layout, manifest["config"]["digest"]), "its configuration")
        return _hex(listed["digest"]), config
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable("it is not an OCI image") from error


def _environment(config: dict[str, Any]) -> list[str]:
    inner = config.get("config") or {}
    given = inner.get("Env") or [] if isinstance(inner, dict) else []
    variables = [str(each) for each in given if "=" in str(each) and "\0" not in str(each)]
    if sum(map(len, variables)) > MAX_ENVIRONMENT:
        raise Unavailable(f"its variables take more than {MAX_ENVIRONMENT} bytes")
    return variables


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs/sha256" / _hex(digest)


def _hex(digest: str) -> str:
    kind, _, text = digest.partition(":")
    if kind != "sha256" or len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise ValueError(digest)
    return text


def _size(place: Path) -> int:
    try:
        return int(read_json(place / "image.json", "image").get("size") or 0)
    except (CroupierError, TypeError, ValueError):
        return 0


def _last_used(place: Path) -> float:
    try:
        return (place / "image.json").stat().st_mtime
    except OSError:
        return 0.0


def _entries(directory: Path) -> list[Path]:
    try:
        return [Path(each) for each in os.scandir(directory)]
    except OSError:
        return []
