"""The documentation: its links lead somewhere, the files it names exist, its lines are short."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
MAX_COLUMNS = 120
LINK = re.compile(r"\]\(([^)\s]+)\)")
FOLDER = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*)/`")
SOURCE_FILE = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*\.(?:py|proto|sh))`")


@cache
def tracked() -> tuple[str, ...]:
    if not (REPO / ".git").exists():
        return tuple(str(path.relative_to(REPO)) for path in REPO.rglob("*") if path.is_file())
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True)
    return tuple(name for name in listed.stdout.split("\0") if (REPO / name).is_file())


PAGES = sorted(name for name in tracked() if name.endswith(".md"))


def prose(page: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines outside code blocks."""
    is_code = False
    for number, line in enumerate((REPO / page).read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def anchors(page: str) -> set[str]:
    titles = (line.lstrip("#").strip() for _, line in prose(page) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def is_there(page: str, target: str) -> bool:
    path, _, anchor = target.partition("#")
    found = ((REPO / page).parent / path).resolve() if path else REPO / page
    if not found.exists():
        return False
    return not anchor or anchor in anchors(str(found.relative_to(REPO)))


@pytest.mark.parametrize("page", PAGES)
def test_links_within_the_repository_lead_somewhere(page: str) -> None:
    targets = [target for _, line in prose(page) for target in LINK.findall(line)]
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not is_there(page, target)] == []


@pytest.mark.parametrize("page", PAGES)
def test_lines_of_prose_are_short(page: str) -> None:
    long = [n for n, line in prose(page) if len(line) > MAX_COLUMNS and not line.startswith("|")]
    assert long == []


@pytest.mark.parametrize(
    "page",
    [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "agent/README.md",
        "framework_sdk/README.md",
        "proto/README.md",
    ],
)
def test_the_source_files_and_folders_that_a_page_names_exist(page: str) -> None:
    files = {name for _, line in prose(page) for name in SOURCE_FILE.findall(line)}
    folders = {name for _, line in prose(page) for name in FOLDER.findall(line)}
    assert len(files | folders) >= 5
    missing = [n for n in files if not any(f"/{path}".endswith(f"/{n}") for path in tracked())]
    missing += [n for n in folders if not any(f"/{n}/" in f"/{path}" for path in tracked())]
    assert sorted(missing) == []


def test_files_of_the_architecture_call_what_they_are_said_to_call() -> None:
    text = " ".join((REPO / "ARCHITECTURE.md").read_text().split())
    claims = re.findall(r"`([\w/]+\.py)` calls `(?:\w+\.)?(\w+)`", text)
    assert len(claims) >= 2
    for path, name in claims:
        (found,) = (each for each in tracked() if f"/{each}".endswith(f"/{path}"))
        assert f".{name}" in (REPO / found).read_text(), f"{path} does not call {name}"


def test_the_wire_has_the_services_and_streams_that_its_readme_names() -> None:
    text = (REPO / "proto/README.md").read_text()
    wire = text[text.index("## The wire") :].split("\n\n")[1]
    contract = "".join(path.read_text() for path in (REPO / "proto/croupier/v1").glob("*.proto"))
    services = re.findall(r"^service (\w+)", contract, re.MULTILINE)
    streams = re.findall(r"rpc (\w+)\([^)]*\) returns \(stream|rpc (\w+)\(stream", contract)
    calls = {name for pair in streams for name in pair if name} - {"Connect"}
    assert set(re.findall(r"`(\w+)`", wire)) == {*services, *calls, "Join"}


def test_the_readme_of_shared_code_names_every_package() -> None:
    text = (REPO / "proto/README.md").read_text()
    packages = {name.split("/")[2] for name in tracked() if name.startswith("proto/croupier/")}
    assert [each for each in sorted(packages) if f"| `croupier/{each}/" not in text] == []


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, waiting = set[str](), ["README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for _, line in prose(page):
            for target in LINK.findall(line):
                path = ((REPO / page).parent / target.partition("#")[0]).resolve()
                if path.suffix == ".md" and path.is_file():
                    waiting.append(str(path.relative_to(REPO)))
    assert {page for page in PAGES if page.startswith("docs/")} <= reached


@pytest.mark.parametrize("page", [page for page in PAGES if "\n>>> " in (REPO / page).read_text()])
def test_examples_with_a_prompt_print_what_they_say(page: str) -> None:
    assert doctest.testfile(str(REPO / page), module_relative=False).failed == 0


# The documentation as a site: it builds without a warning, and loads nothing from elsewhere.


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
