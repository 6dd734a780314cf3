"""Images and limits that tasks may ask for."""

from __future__ import annotations

import pytest

from croupier.model.errors import InvalidRequest
from croupier.model.isolation import Isolation, parse_limits


@pytest.mark.parametrize("image", ["docker://busybox:1", "oci:/srv/images:latest", "dir:/srv/root"])
def test_images(image: str) -> None:
    Isolation(image=image).check()


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "docker://",
        "docker:///x",
        "oci:",
        "oci:/srv/images:",
        "oci:images:latest",
        "dir:",
        "dir:root",
        "dir:/a b",
        "dir:/a\nb",
        "docker://" + "x" * 1024,
    ],
)
def test_no_images(image: str) -> None:
    with pytest.raises(InvalidRequest):
        Isolation(image=image).check()


@pytest.mark.parametrize("text", ["pids:0", "mem:0", "cpus:1;files:0", "mem:0MB"])
def test_a_limit_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="must be above 0"):
        parse_limits(text)
