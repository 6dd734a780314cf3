"""Images from OCI layouts: fetched by skopeo, unpacked by umoci, kept and removed."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from croupier.agent.core.effects import Spawn
from croupier.agent.core.events import LaunchFailed, Prepared
from croupier.agent.isolation.image_pulls import Pulls
from croupier.agent.isolation.image_store import ImageStore
from croupier.agent.isolation.image_tools import parse_image
from croupier.model.errors import CroupierError, InvalidRequest
from tests.harness.container_tools import image_tools
from tests.harness.eventually import eventually
from tests.harness.oci_image import file, hostile_layers, layer, make_image
from tests.harness.supervisor_fixture import key

# One layer with a small program.
FILES = layer([file("bin/hello", b"#!/bin/sh\necho hello\n", 0o755)])


class Place:
    """A store below a test's directory, and layouts beside it."""

    def __init__(self, path: Path, most: int = 10**8, deadline_s: float = 60) -> None:
        self.path = path
        for name in ("images", "containers", "layouts"):
            (path / name).mkdir(exist_ok=True)
        self.store = ImageStore(path / "images", image_tools(deadline_s), most, path / "containers")

    def pull(self, layout: str) -> Path:
        """Pull from a layout; return the root directory."""
        name = parse_image(f"oci:{self.path}/layouts/{layout}:latest", (self.path,))
        self.store.pull(name)
        image = self.store.find(name)
        assert image is not None
        return image.root

    @property
    def kept(self) -> list[Path]:
        return list((self.path / "images/roots").glob("*"))

    def is_clean(self) -> bool:
        """Return whether nothing is left of pulls that failed."""
        return not any((self.path / "images/pulling").glob("*"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_image_is_unpacked_once_with_its_variables(place: Place) -> None:
    made = make_image(place.path / "layouts/a", [FILES], env={"NAME": "x=y"})
    root = place.pull("a")
    assert (root / "bin/hello").stat().st_mode & 0o111
    name = parse_image(f"oci:{place.path}/layouts/a:latest", (place.path,))
    image = place.store.find(name)
    assert image is not None
    assert dict(image.environment) == {"PATH": "/bin", "NAME": "x=y"}
    assert image.digest == made.manifest.removeprefix("sha256:")
    inode = root.stat().st_ino
    assert place.pull("a").stat().st_ino == inode, "a second pull changes nothing"
    assert place.is_clean()


def test_a_layout_that_changes_is_another_image(place: Place) -> None:
    make_image(place.path / "layouts/a", [FILES])
    first = place.pull("a")
    (place.path / "layouts/a").rename(place.path / "layouts/old")
    make_image(place.path / "layouts/a", [layer([file("new")])])
    name = parse_image(f"oci:{place.path}/layouts/a:latest", (place.path,))
    assert place.store.find(name) is None
    assert place.pull("a") != first


def test_a_missing_image_is_told(place: Place) -> None:
    make_image(place.path / "layouts/a", [FILES])
    with pytest.raises(CroupierError, match="no tag other"):
        place.store.pull(parse_image(f"oci:{place.path}/layouts/a:other", (place.path,)))
    with pytest.raises(InvalidRequest, match="no such directory"):
        parse_image(f"oci:{place.path}/layouts/b:latest", (place.path,))
    assert place.is_clean()


@pytest.mark.parametrize("part", ["config", "manifest", "layer"])
@pytest.mark.parametrize("damage", ["missing", "changed", "truncated"])
def test_a_broken_image_is_refused(place: Place, part: str, damage: str) -> None:
    made = make_image(place.path / "layouts/a", [FILES])
    digest = made.layers[0] if part == "layer" else getattr(made, part)
    blob = made.blob(digest)
    data = blob.read_bytes()
    if damage == "missing":
        blob.unlink()
    else:
        blob.write_bytes(data[: len(data) // 2] if damage == "truncated" else data[:-1] + b"!")
    with pytest.raises(CroupierError):
        place.pull("a")
    assert place.kept == []
    assert place.is_clean()


def test_an_image_of_another_architecture_is_refused(place: Place) -> None:
    make_image(place.path / "layouts/a", [FILES], architecture="s390x")
    with pytest.raises(CroupierError, match="s390x"):
        place.pull("a")
    assert place.kept == []


def test_hostile_layers_name_what_is_outside(tmp_path: Path) -> None:
    for attempt, packed in hostile_layers(tmp_path).items():
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as archive:
            entries = archive.getmembers()
        names = [text for entry in entries for text in (entry.name, entry.linkname)]
        inside = attempt in ("block device", "setuid file")
        assert any(str(tmp_path).lstrip("/") in name for name in names) != inside, attempt


@pytest.mark.parametrize("attempt", hostile_layers(Path("/x")))
def test_a_hostile_layer_reaches_nothing_outside(tmp_path: Path, attempt: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret\n")
    place = Place(tmp_path)
    make_image(place.path / "layouts/a", [FILES, hostile_layers(outside)[attempt]])
    try:
        root = place.pull("a")
    except CroupierError:
        assert place.kept == []
    else:
        for path in root.rglob("*"):
            mode = path.lstat().st_mode
            assert not stat.S_ISBLK(mode)
            is_secret = stat.S_ISREG(mode) and path.read_bytes() == b"secret\n"
            assert not is_secret, f"{path} shows a file of the machine"
    assert sorted(each.name for each in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_text() == "secret\n"
    assert place.is_clean()


def test_the_image_that_was_not_used_for_the_longest_time_makes_room(tmp_path: Path) -> None:
    place = Place(tmp_path, most=2_500_000)
    for name in "abc":
        make_image(tmp_path / f"layouts/{name}", [layer([file(name, os.urandom(900_000))])])
    first, second = place.pull("a").parent, place.pull("b").parent
    (tmp_path / "containers/run").mkdir()
    used = parse_image(f"oci:{tmp_path}/layouts/a:latest", (tmp_path,))
    assert place.store.use(used, "run") is not None
    for each in (first, second):
        os.utime(each / "image.json", (1, 1))
    place.pull("c")
    assert first.exists(), "a task uses it"
    assert not second.exists()
    make_image(tmp_path / "layouts/d", [layer([file("d", os.urandom(1_900_000))])])
    with pytest.raises(CroupierError, match="--image-cache"):
        place.pull("d")
    assert place.is_clean()


def test_an_image_that_grows_too_large_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path, most=2_000_000)
    # It takes 8 MB on disk, and a few KB as a layer.
    make_image(tmp_path / "layouts/a", [layer([file("zeros", b"\0" * 8_000_000)])])
    with pytest.raises(CroupierError, match="--image-cache"):
        place.pull("a")
    assert place.kept == []


def test_what_a_killed_agent_has_left_is_removed(place: Place) -> None:
    make_image(place.path / "layouts/a", [FILES])
    kept = place.pull("a")
    for name in ("pulling/x/tree", "removed/y", "roots/half"):
        (place.path / "images" / name).mkdir(parents=True)
    place.store.clean()
    assert kept.is_dir()
    assert [each.name for each in place.kept] == [kept.parent.name]
    assert place.is_clean()


class TestLaunchesThatWait:
    async def test_are_reported_once_their_image_is_here(self, place: Place) -> None:
        make_image(place.path / "layouts/a", [FILES])
        reports: list[Prepared | LaunchFailed] = []
        pulls = Pulls(place.store, (place.path,), reports.append)
        image = f"oci:{place.path}/layouts/a:latest"
        assert pulls.has_to_wait(Spawn(key("t1"), "r1"), image)
        assert pulls.has_to_wait(Spawn(key("t2"), "r2", again=True), image)
        assert pulls.has_to_wait(Spawn(key("t3"), "r3"), image)
        assert pulls.cancel(key("t3"))
        assert not pulls.cancel(key("t3"))
        await eventually(lambda: len(reports) == 2, 30, what="both are reported")
        assert reports == [
            Prepared(Spawn(key("t1"), "r1")),
            Prepared(Spawn(key("t2"), "r2", again=True)),
        ]
        assert not pulls.has_to_wait(Spawn(key("t1"), "r1"), image)
        pulls.close()

    async def test_fail_with_the_reason(self, place: Place) -> None:
        made = make_image(place.path / "layouts/a", [FILES])
        made.blob(made.layers[0]).unlink()
        reports: list[Prepared | LaunchFailed] = []
        pulls = Pulls(place.store, (place.path,), reports.append)
        image = f"oci:{place.path}/layouts/a:latest"
        assert pulls.has_to_wait(Spawn(key("t1"), "r1"), image)
        began = asyncio.get_running_loop().time()
        await eventually(lambda: reports, 30, what="it is reported")
        assert asyncio.get_running_loop().time() - began < 20
        (report,) = reports
        assert isinstance(report, LaunchFailed)
        assert report.message.startswith(f"cannot get image {image}: ")
        assert pulls.has_to_wait(Spawn(key("t1"), "r1"), image), "the next task tries again"
        pulls.close()
