"""The commands and flags of a program, from its cyclopts application."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cyclopts import App

from docs.site.reference.markdown import cell, paragraph, table

# What cyclopts prints for a flag: names and type, help, default.
_FLAG: Final = re.compile(
    r"\* `(?P<names>[^`]+)`:? ?(?P<text>.*?)(?: *\*\[default: (?P<default>.*)\]\*)?", re.DOTALL
)
# Pages say once how a flag's variable is called.
_VARIABLE: Final = re.compile(r" *\*\[env: [A-Z_]+\]\*")
_OF_THIS_MACHINE: Final = {"--hostname": "of the machine"}
_GROUP: Final = re.compile(r"\*\*(?P<name>[\w ]+)\*\*:")
# Each command of `croupier` has these; the page has them once.
_SHARED: Final = "Connection"


def program(app: App) -> Iterator[str]:
    """Yield the sections of a program: itself, then its commands in the order of their names."""
    texts = {name: _text(each) for name, each in _all(app) if _is_shown(each, app)}
    yield from _section(texts.pop(app.name[0]))
    groups = map(_groups, texts.values())
    shared = next((found[_SHARED] for found in groups if _SHARED in found), None)
    if shared:
        yield from ("", f"## {_SHARED} flags", "", "All commands that speak to a master have:", "")
        yield from table(("Flag", "Meaning", "Default"), shared)
    for name, text in texts.items():
        yield from ("", f"## {name}")
        yield from _section(text)


def _all(app: App, name: str = "") -> Iterator[tuple[str, App]]:
    name = name or app.name[0]
    yield name, app
    for word in sorted(app):
        if not word.startswith("-"):
            yield from _all(app[word], f"{name} {word}")


def _is_shown(each: App, app: App) -> bool:
    return each is app or (each.show and each.default_command is not None)


def _section(text: str) -> Iterator[str]:
    for part in text.partition("\n**")[0].split("\n\n"):
        if part.strip() and not part.lstrip().startswith(("#", "```", "- [")):
            yield ""
            yield from paragraph(part)
    for group, rows in _groups(text).items():
        if rows and group != _SHARED:
            yield ""
            yield from table((_HEADS.get(group, group), "Meaning", "Default"), rows)


_HEADS: Final = {"Parameters": "Flag", "Arguments": "Argument"}


def _text(app: App) -> str:
    """Return what cyclopts generates for one command."""
    text = app.generate_docs(output_format="markdown", recursive=False)
    # The commands of a program with flags of its own follow all the same.
    return text.partition(f"\n## {app.name[0]} ")[0]


def _groups(text: str) -> dict[str, list[tuple[str, str, str]]]:
    """Return rows of names, meaning and default, by the title of their group."""
    groups = dict[str, list[tuple[str, str, str]]]()
    parts = re.split(r"^(\*\*[\w ]+\*\*:)$", text, flags=re.MULTILINE)
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        found = _GROUP.fullmatch(title)
        assert found
        if found["name"] == "Commands":
            continue
        items = re.split(r"^(?=\* )", body, flags=re.MULTILINE)
        groups[found["name"]] = [_row(item.strip()) for item in items if item.startswith("* ")]
    return groups


def _row(item: str) -> tuple[str, str, str]:
    found = _FLAG.fullmatch(item)
    assert found, item
    default = _OF_THIS_MACHINE.get(found["names"].split()[0], found["default"] or "")
    shown = f"`{default}`" if default not in ("", '""', "False") else ""
    names = found["names"].replace("|", "\\|")
    text = _VARIABLE.sub("", found["text"]).replace("**[required]**", "Required.")
    return f"`{names}`", cell(text), shown
