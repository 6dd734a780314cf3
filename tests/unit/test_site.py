"""The documentation as a site: it builds without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
CONFIG = REPO / "docs/site/mkdocs.yml"
# What a browser fetches when it opens a page.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"""
)
# How a fence looks that Markdown of the site does not know.
SPILT = re.compile(r"<p>```|<p><code>(?:sh|toml|python|output)(?: \w+:[^<\n]*)?\n")
LIST_ITEM = re.compile(r"(?:[-*]|\d+\.) ")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a broken link or anchor is an error."""
    target = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", CONFIG, "-d", target],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "default"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert built.returncode == 0, built.stderr
    return target


def test_every_page_is_built(site: Path) -> None:
    sources = [path for path in (REPO / "docs").rglob("*.md") if path.name != "README.md"]
    assert len(sources) > 40
    for source in sources:
        assert (site / source.relative_to(REPO).with_suffix(".html")).is_file(), source
    assert "Croupier" in (site / "index.html").read_text()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = {
        target
        for page in site.rglob("*.html")
        for match in LOADED.findall(page.read_text())
        for target in match
        if target
    }
    assert len(loaded) > 3
    assert [target for target in sorted(loaded) if "//" in target] == []


def test_fences_are_shown_as_code(site: Path) -> None:
    assert [page for page in site.rglob("*.html") if SPILT.search(page.read_text())] == []


@pytest.mark.parametrize("page", sorted((REPO / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_lists_are_lists_on_the_site_too(page: Path) -> None:
    """Code hosts begin a list within a paragraph, Markdown of the site after an empty line."""
    before, is_code, bad = "", False, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        may_begin = not before or bool(LIST_ITEM.match(before)) or before.startswith("  ")
        if LIST_ITEM.match(line) and not (is_code or may_begin):
            bad.append(number)
        before = line
    assert bad == []
