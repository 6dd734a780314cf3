"""The scripts that complete `croupier`: a table of words, and how each shell uses it.

The scripts stand beside this module. Those of bash and zsh share `walk.sh` and `choose.sh`.

Rule: a script starts `croupier` only for ids, and evaluates nothing that `croupier` prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from croupier.cli.flags import CONNECTION_FLAGS

SHELLS: Final = ("bash", "zsh", "fish")
_HERE: Final = Path(__file__).parent


def script(shell: str, table: Mapping[str, Sequence[str]]) -> str:
    """Return the script of a shell for the words of `commands.completion.table`."""
    lines = _fish_table(table) if shell == "fish" else _posix_table(table)
    text = (_HERE / f"croupier.{shell}").read_text()
    for part in ("walk", "choose"):
        text = text.replace(f"  # {part.upper()}\n", (_HERE / f"{part}.sh").read_text())
    # The first line lets zsh find the script in fpath.
    head = "#compdef croupier\n" if shell == "zsh" else ""
    return head + "\n".join(lines) + "\n" + text.replace("CONNECTION", " ".join(CONNECTION_FLAGS))


def _posix_table(table: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "# Completion of croupier; made by `croupier completion`."
    yield "_croupier_words() {"
    yield '  case "$1" in'
    for path, lines in table.items():
        yield f"  '{path}') printf '%s\\n' {' '.join(map(_quoted, lines))};;"
    yield "  *) return 1;;"
    yield "  esac"
    yield "}"
    yield ""


def _fish_table(table: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "# Completion of croupier; made by `croupier completion`."
    yield "function __croupier_words"
    yield '  switch "$argv[1]"'
    for path, lines in table.items():
        yield f"  case '{path}'"
        yield f"    printf '%s\\n' {' '.join(map(_quoted, lines))}"
    yield "  case '*'"
    yield "    return 1"
    yield "  end"
    yield "end"
    yield ""


def _quoted(line: str) -> str:
    assert "'" not in line
    assert "\\" not in line
    return f"'{line}'"
