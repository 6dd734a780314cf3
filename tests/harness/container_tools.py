"""The tools that fetch and unpack images, from Debian packages where the machine lacks them."""

from __future__ import annotations

import threading

from croupier.agent.isolation.image_tools import ImageTools
from tests.harness.debian import program


def image_tools(deadline_s: float = 60.0) -> ImageTools:
    """Return skopeo and umoci; skip the test, or fail it in CI, without them."""
    names = str(program("skopeo")), str(program("umoci"))
    return ImageTools(*names, deadline_s, threading.Event())
