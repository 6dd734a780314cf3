"""Makes the pictures of docs/page.md: python -m tests.integration.page.screenshots [DIRECTORY]."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.chromium import chromium
from tests.integration.page.cluster import Cluster
from tests.integration.page.fake_api import FakeApi
from tests.integration.page.large_master import AGENTS, large_master
from tests.integration.page.visitor import Visitor

IMAGES = Path(__file__).resolve().parents[3] / "docs/pictures"
# A name, the number of agents, the view, the colours, the width of the window.
PICTURES = (
    ("page-overview", 300, ("overview",), "light", 1100),
    ("page-overview-10000", AGENTS, ("overview",), "dark", 1100),
    ("page-roles", 300, ("roles",), "light", 1100),
    ("page-framework", 3, ("frameworks", "f-1"), "light", 1100),
    ("page-phone", 3, ("overview",), "dark", 360),
)
HEIGHT = 860


@contextmanager
def cluster_of(agents: int) -> Iterator[str]:
    """Serve a made-up cluster; a large one is the state of a real master. Yield its URL."""
    if agents >= AGENTS:
        with large_master(agents) as url:
            yield url
    else:
        with FakeApi(Cluster(agents)).running() as api:
            yield api.url


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, size, view, scheme, width in PICTURES:
            with (
                cluster_of(size) as url,
                Visitor.of(browser, url, scheme=scheme, width=width) as visitor,
            ):
                visitor.page.set_viewport_size({"width": width, "height": HEIGHT})
                visitor.go(*view)
                visitor.one(".link.live").wait_for()
                visitor.page.screenshot(path=directory / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
