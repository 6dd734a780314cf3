"""Root directories and OCI images for tests of containers, good and broken ones.

    root = make_root(tmp_path / "root")
    image = make_image(tmp_path / "layout", [layer_of(root)], command=["sh", "-c", "id"])
    image.blob(image.layers[0]).unlink()    # now it is broken

`skopeo` and `umoci` name the image `oci:LAYOUT:latest` and `LAYOUT:latest`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.debian import program

TYPES = "application/vnd.oci.image"
TAG = "latest"
# Names of architectures in images, by those of the kernel.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
FOLDERS = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var")
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"


@dataclass(frozen=True, slots=True)
class Image:
    """An image in an OCI layout on disk.

    Attributes:
        layout: the directory of the layout.
        manifest: the digest of the manifest, such as `sha256:12ab...`.
        config: the digest of the configuration.
        layers: the digests of the layers, lowest first.
    """

    layout: Path
    manifest: str
    config: str
    layers: tuple[str, ...]

    def blob(self, digest: str) -> Path:
        """Return the file of a blob, which a test may remove or change."""
        return blob_path(self.layout, digest)


def make_root(path: Path) -> Path:
    """Make a root directory of about 2 MB with busybox and two users, and return `path`."""
    for folder in FOLDERS:
        (path / folder).mkdir(parents=True)
    (path / "tmp").chmod(0o1777)
    (path / "etc/passwd").write_text(PASSWD)
    (path / "etc/group").write_text(GROUP)
    busybox = path / "bin/busybox"
    shutil.copy(program("busybox"), busybox)
    listed = subprocess.run(
        [busybox, "--list"], capture_output=True, text=True, check=True, timeout=30
    )
    for name in listed.stdout.split():
        if name != "busybox":
            (path / "bin" / name).symlink_to("busybox")
    return path


def make_image(
    layout: Path,
    layers: Sequence[bytes],
    *,
    command: Sequence[str] = ("sh",),
    entrypoint: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    user: str = "",
    directory: str = "",
    architecture: str | None = None,
) -> Image:
    """Write an image into a new OCI layout, tagged `latest`.

    Arguments:
        layout: a directory that does not exist.
        layers: compressed layers, lowest first: see `layer_of` and `layer`.
        command: the default command (`Cmd`).
        entrypoint: what comes before the command.
        env: variables besides PATH.
        user: the user, `NAME`, `UID` or `UID:GID`; by default that is root.
        directory: the working directory.
        architecture: by default the machine's own.
    """
    (layout / "blobs/sha256").mkdir(parents=True)
    architecture = architecture or ARCHITECTURES[platform.machine()]
    variables = {"PATH": "/bin"} | dict(env or {})
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Cmd": list(command),
            "Entrypoint": list(entrypoint),
            "Env": [f"{name}={value}" for name, value in variables.items()],
            "User": user,
            "WorkingDir": directory,
        },
        "rootfs": {"type": "layers", "diff_ids": [digest_of(contents(one)) for one in layers]},
    }
    described = [put_blob(layout, one, f"{TYPES}.layer.v1.tar+gzip") for one in layers]
    configured = put_blob(layout, as_json(config), f"{TYPES}.config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{TYPES}.manifest.v1+json",
        "config": configured,
        "layers": described,
    }
    listed = put_blob(layout, as_json(manifest), f"{TYPES}.manifest.v1+json") | {
        "annotations": {"org.opencontainers.image.ref.name": TAG},
        "platform": {"architecture": architecture, "os": "linux"},
    }
    (layout / "oci-layout").write_bytes(as_json({"imageLayoutVersion": "1.0.0"}))
    (layout / "index.json").write_bytes(as_json({"schemaVersion": 2, "manifests": [listed]}))
    digests = tuple(str(one["digest"]) for one in described)
    return Image(layout, str(listed["digest"]), str(configured["digest"]), digests)


def layer_of(root: Path) -> bytes:
    """Return the layer that holds a directory; the same files give the same bytes."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, path.name, filter=plain)
    return gzip.compress(packed.getvalue(), mtime=0)


def layer(entries: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """Return the layer that holds exactly `entries`, whatever their names and targets are."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for entry, data in entries:
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


def file(name: str, data: bytes = b"x\n", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    """Return an entry that is a file."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    return entry, data


def symbolic_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    """Return an entry that is a symbolic link."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
    return entry, b""


def hard_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    """Return an entry that is a hard link; `target` is a path from the root of the layer."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.LNKTYPE, target
    return entry, b""


def block_device(name: str, major: int, minor: int) -> tuple[tarfile.TarInfo, bytes]:
    """Return an entry that is a block device."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.devmajor, entry.devminor, entry.mode = tarfile.BLKTYPE, major, minor, 0o666
    return entry, b""


def hostile_layers(outside: Path) -> dict[str, bytes]:
    """Return layers that try to write or read `outside`, an absolute directory, by what they try.

    A careless unpacker makes `outside/hostile`, or changes or shows `outside/secret`.
    """
    up = "../" * 32 + str(outside).lstrip("/")
    return {
        "parent path": layer([file(f"{up}/hostile")]),
        "parent path inside": layer([file(f"tmp/{up}/hostile")]),
        "absolute path": layer([file(f"{outside}/hostile")]),
        "through an absolute link": layer(
            [symbolic_link("escape", str(outside)), file("escape/hostile")]
        ),
        "through a relative link": layer([symbolic_link("escape", up), file("escape/hostile")]),
        "over a link to a file": layer(
            [symbolic_link("escape", f"{outside}/secret"), file("escape", b"changed\n")]
        ),
        "hard link": layer(
            [hard_link("escape", f"{outside}/secret"), file("escape", b"changed\n")]
        ),
        "hard link by parents": layer([hard_link("escape", f"{up}/secret")]),
        "hard link through a link": layer(
            [symbolic_link("dir", str(outside)), hard_link("escape", "dir/secret")]
        ),
        "whiteout by parents": layer([file(f"{up}/.wh.secret", b"")]),
        "whiteout through a link": layer(
            [symbolic_link("escape", str(outside)), file("escape/.wh.secret", b"")]
        ),
        "opaque whiteout through a link": layer(
            [symbolic_link("escape", str(outside)), file("escape/.wh..wh..opq", b"")]
        ),
        "block device": layer([block_device("dev/disk", 254, 0)]),
        "setuid file": layer([file("bin/hostile", b"#!/bin/sh\nid\n", 0o4755)]),
    }


def put_blob(layout: Path, data: bytes, kind: str) -> dict[str, object]:
    """Write a blob, and return its descriptor."""
    digest = digest_of(data)
    blob_path(layout, digest).write_bytes(data)
    return {"mediaType": kind, "digest": digest, "size": len(data)}


def blob_path(layout: Path, digest: str) -> Path:
    """Return the path of a blob in a layout."""
    return layout / "blobs" / digest.replace(":", "/")


def contents(compressed: bytes) -> bytes:
    """Return an uncompressed layer; one that is not gzip, which a test may want, is itself."""
    try:
        return gzip.decompress(compressed)
    except (OSError, EOFError):
        return compressed


def digest_of(data: bytes) -> str:
    """Return the digest of a blob."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def as_json(value: object) -> bytes:
    """Return `value` as JSON."""
    return json.dumps(value).encode()
