"""Hooks of MkDocs: the site's pages are the repository's Markdown files, each at its own path.

So a relative link leads to the same place on the site and on a code host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

REPO: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("docs", "framework_sdk", "agent", "master", "proto", "deploy", "tests")
_LINK: Final = re.compile(r"\]\(([^)\s#]+)")
# A fence may say more than its language, which readers of the site need not see.
_FENCE: Final = re.compile(r"^([ ]*```\w+) .*$", re.MULTILINE)


def pages() -> Iterator[Path]:
    """Yield the Markdown files of the repository."""
    yield from sorted(REPO.glob("*.md"))
    for folder in FOLDERS:
        yield from sorted((REPO / folder).rglob("*.md"))


def linked_files(page: Path) -> Iterator[Path]:
    """Yield the files other than pages to which `page` links, such as pictures."""
    for target in _LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        if path.is_file() and path.suffix != ".md" and path.is_relative_to(REPO):
            yield path


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages, and the files that they link to."""
    found = {path: None for page in pages() for path in (page, *linked_files(page))}
    for path in found:
        name = path.relative_to(REPO).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Drop what a fence says after its language."""
    return _FENCE.sub(r"\1", markdown)
