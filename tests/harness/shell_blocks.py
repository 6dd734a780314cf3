"""The fenced blocks of a Markdown page, and running those of a shell in order, as a reader would.

What a fence says after its language is its mark:

    ```sh                       run in one shell for the whole page, after the blocks before it
    ```output                   what the block before it prints; a line `...` stands for any lines
    ```toml save: web.toml      saved as a file, before the next block runs
    ```sh cluster               starts the cluster on which the page's blocks run
    ```sh no-run: REASON        not run
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*) ?(?P<mark>.*)$")
_SAVED = re.compile(r"save: (?P<name>[\w.-]+)")
_NOT_RUN = re.compile(r"no-run: (?P<reason>.{8,})")
_MARK = "=== block "


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
        return self.language == "sh" and not self.mark

    def check(self) -> None:
        """Assert that its mark is one of the above."""
        known = not self.mark or self.saved_as or (self.language == "sh" and self.reason)
        assert known or (self.language, self.mark) == ("sh", "cluster"), f"{self.line}: {self.mark}"


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


def run_page(page: str, folder: Path, env: Mapping[str, str], timeout_s: float) -> str:
    """Run the shell blocks of a page's text in `folder`, in one shell; return what they print.

    Raises:
        AssertionError: if a command fails, prints something else than the page says, or takes
            longer than `timeout_s` with all that come before it.
    """
    found = list(blocks(page))
    output = run_script(_script(found), folder, env, timeout_s)
    printed = dict(_printed(output))
    for block, answer in pairwise(found):
        if block.runs and answer.language == "output":
            assert is_like(printed[block.line], answer.text), (
                f"line {block.line} printed\n{printed[block.line]}and not\n{answer.text}"
            )
    return output


def run_script(script: str, folder: Path, env: Mapping[str, str], timeout_s: float) -> str:
    """Run a script of bash, and return what it prints.

    Raises:
        AssertionError: if it fails, or takes longer than `timeout_s`.
    """
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder, env=dict(env), text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()  # its trap ends what it has started
        out, err = process.communicate(timeout=10)
        raise AssertionError(f"longer than {timeout_s:g} s:\n{out}\n{err}") from None
    assert process.returncode == 0, f"exit code {process.returncode}:\n{out}\n{err}"
    return out


def is_like(printed: str, expected: str) -> bool:
    """Return whether a text has the lines of `expected`, where `...` stands for any lines."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", expected, flags=re.MULTILINE)]
    return re.fullmatch(r"(?:.*\n)*?".join(parts), printed) is not None


def _script(found: Sequence[Block]) -> str:
    """Return the script of a page; it ends its background jobs when it ends."""
    parts = ["set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT TERM\n"]
    for block in found:
        if block.saved_as:
            parts.append(f"cat >{block.saved_as} <<'END OF FILE'\n{block.text}END OF FILE\n")
        elif block.runs:
            parts.append(
                f"echo '{_MARK}{block.line}'; echo '{_MARK}{block.line}' >&2\n{block.text}"
            )
    return "".join(parts)


def _printed(output: str) -> Iterator[tuple[int, str]]:
    """Yield what each block printed, by the line of its fence."""
    for part in output.split(_MARK)[1:]:
        number, _, text = part.partition("\n")
        yield int(number), text
