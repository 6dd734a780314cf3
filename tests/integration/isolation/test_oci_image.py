"""The harness of images: the tools accept the good ones, and the broken ones are broken."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.harness.debian import program
from tests.harness.oci_image import (
    Image,
    blob_path,
    digest_of,
    hostile_layers,
    layer_of,
    make_image,
    make_root,
)


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)


def inspect(image: Image) -> subprocess.CompletedProcess[str]:
    skopeo = program("skopeo")
    return run(skopeo, "--insecure-policy", "inspect", "--config", f"oci:{image.layout}:latest")


def unpack(image: Image, bundle: Path) -> subprocess.CompletedProcess[str]:
    rootless = ["--rootless"] if os.geteuid() else []
    return run(program("umoci"), "unpack", *rootless, "--image", f"{image.layout}:latest", bundle)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "root")


@pytest.fixture
def image(tmp_path: Path, root: Path) -> Image:
    env = {"GREETING": "good day"}
    words = ["sh", "-c", "id"]
    return make_image(tmp_path / "image", [layer_of(root)], command=words, env=env, user="65534")


def test_a_shell_runs_in_a_root_directory(root: Path) -> None:
    box: list[str | Path] = [
        program("bwrap"),
        "--ro-bind",
        root,
        "/",
        "--unshare-all",
        "--clearenv",
    ]
    shown = run(*box, "/bin/sh", "-c", "grep nobody /etc/passwd | cut -d: -f3; ls -d /tmp")
    assert (shown.returncode, shown.stdout) == (0, "65534\n/tmp\n"), shown.stderr


def test_skopeo_reads_an_image(image: Image) -> None:
    inspected = inspect(image)
    assert inspected.returncode == 0, inspected.stderr
    config = json.loads(inspected.stdout)["config"]
    assert config["Cmd"] == ["sh", "-c", "id"]
    assert config["Env"] == ["PATH=/bin", "GREETING=good day"]
    assert config["User"] == "65534"


def test_skopeo_copies_an_image(image: Image, tmp_path: Path) -> None:
    words = ["copy", f"oci:{image.layout}:latest", f"oci:{tmp_path}/copy:latest"]
    copied = run(program("skopeo"), "--insecure-policy", *words)
    assert copied.returncode == 0, copied.stderr
    assert blob_path(tmp_path / "copy", image.layers[0]).exists()


def test_umoci_unpacks_an_image(image: Image, root: Path, tmp_path: Path) -> None:
    unpacked = unpack(image, tmp_path / "bundle")
    assert unpacked.returncode == 0, unpacked.stderr
    files = {str(path.relative_to(root)) for path in root.rglob("*")}
    rootfs = tmp_path / "bundle/rootfs"
    assert {str(path.relative_to(rootfs)) for path in rootfs.rglob("*")} == files
    process = json.loads((tmp_path / "bundle/config.json").read_text())["process"]
    assert process["args"] == ["sh", "-c", "id"]
    assert "GREETING=good day" in process["env"]


def test_upper_layers_hide_lower_ones(root: Path, tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    (upper / "etc").mkdir(parents=True)
    (upper / "etc/passwd").write_text("changed\n")
    (upper / "etc/.wh.group").touch()
    image = make_image(tmp_path / "image", [layer_of(root), layer_of(upper)])
    assert unpack(image, tmp_path / "bundle").returncode == 0
    etc = tmp_path / "bundle/rootfs/etc"
    assert [path.name for path in etc.iterdir()] == ["passwd"]
    assert (etc / "passwd").read_text() == "changed\n"


def test_the_same_files_make_the_same_image(root: Path, tmp_path: Path) -> None:
    again = layer_of(make_root(tmp_path / "again"))
    assert digest_of(again) == digest_of(layer_of(root))


@pytest.mark.parametrize("part", ["manifest", "config", "layer"])
@pytest.mark.parametrize("change", ["missing", "altered"])
def test_tools_refuse_a_broken_blob(image: Image, tmp_path: Path, part: str, change: str) -> None:
    digests = {"manifest": image.manifest, "config": image.config, "layer": image.layers[0]}
    blob = image.blob(digests[part])
    if change == "missing":
        blob.unlink()
    else:
        blob.write_bytes(blob.read_bytes()[:-1] + b" ")
    assert unpack(image, tmp_path / "bundle").returncode != 0


def test_an_image_of_another_architecture_says_so(root: Path, tmp_path: Path) -> None:
    image = make_image(tmp_path / "image", [layer_of(root)], architecture="s390x")
    assert json.loads(inspect(image).stdout)["architecture"] == "s390x"


def test_hostile_layers_name_what_is_outside(tmp_path: Path) -> None:
    for attempt, packed in hostile_layers(tmp_path).items():
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as archive:
            entries = archive.getmembers()
        names = [text for entry in entries for text in (entry.name, entry.linkname)]
        inside = attempt in ("block device", "setuid file")
        assert any(str(tmp_path).lstrip("/") in name for name in names) != inside, attempt
