"""The fenced blocks of a Markdown page.

What a fence says after its language is its mark:

    ```sh                       run in one shell for the whole page, after the blocks before it
    ```sh own shell             run in a subshell, as by another user, with copies of certificates
    ```sh daemon                run in the background until the page ends
    ```output                   what the block before it prints; a line `...` stands for any lines
    ```toml save: web.toml      saved as a file, before the next block runs
    ```sh cluster               starts the cluster on which the page's blocks run
    ```sh no-run: REASON        not run; the commands of Croupier in it are still parsed
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_FENCE: Final = re.compile(r"^(?P<indent> *)```(?P<language>\w*) ?(?P<mark>.*)$")
_SAVED: Final = re.compile(r"save: (?P<name>[\w.-]+)")
_NOT_RUN: Final = re.compile(r"no-run: (?P<reason>.{8,})")
CLUSTER: Final = "cluster"
DAEMON: Final = "daemon"
OWN_SHELL: Final = "own shell"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: `line` is that of its fence, counted from 1."""

    line: int
    language: str
    mark: str
    text: str

    @property
    def reason(self) -> str:
        """Why it is not run; empty if it is."""
        found = _NOT_RUN.fullmatch(self.mark)
        return found["reason"] if found else ""

    @property
    def saved_as(self) -> str:
        """The name of the file that it is saved as; empty if it is not saved."""
        found = _SAVED.fullmatch(self.mark)
        return found["name"] if found else ""

    @property
    def runs(self) -> bool:
        """Whether a shell runs it."""
        return self.language == "sh" and self.mark in ("", DAEMON, OWN_SHELL)

    def check(self) -> None:
        """Assert that its mark is one of the above."""
        of_shell = self.language == "sh" and (self.reason or self.mark == CLUSTER)
        known = not self.mark or self.saved_as or self.runs or of_shell
        assert known, f"{self.line}: {self.mark}"


def blocks(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page's text."""
    start, fence, lines = 0, None, list[str]()
    for number, line in enumerate(page.splitlines(), 1):
        found = _FENCE.match(line)
        if fence is None:
            if found:
                start, fence, lines = number, found, []
        elif found and not found["language"]:
            text = "".join(f"{each.removeprefix(fence['indent'])}\n" for each in lines)
            yield Block(start, fence["language"], fence["mark"].strip(), text)
            fence = None
        else:
            lines.append(line)
    assert fence is None, f"the block at line {start} has no end"
