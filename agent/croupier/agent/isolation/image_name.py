"""Names of images: of a registry, of an OCI layout on this machine, or of a root directory."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from croupier.agent.directories import open_beneath
from croupier.model.errors import InvalidRequest, NotFound

_DOCKER: Final = "docker://"
_OCI: Final = "oci:"
_DIR: Final = "dir:"
MAX_JSON: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ImageName:
    """The name of an image, as its task gives it.

    Attributes:
        text: the whole name.
        path: of a layout or a root directory; None in a registry.
        tag: of an image in a layout.
    """

    text: str
    path: Path | None = None
    tag: str = ""

    @property
    def is_directory(self) -> bool:
        """Whether it is a root directory, which is used in place."""
        return self.path is not None and not self.tag

    def source(self) -> str:
        """Return what identifies the present content of a layout; empty for a registry.

        Raises:
            NotFound: if the layout has no such image, or cannot be read.
        """
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

    Raises:
        InvalidRequest: if the name is malformed, or its path is not allowed or leads over a link.
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
    """Read a small file with a JSON object.

    Raises:
        NotFound: if there is none; the message begins with `what`.
    """
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
