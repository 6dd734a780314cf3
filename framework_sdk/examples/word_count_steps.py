"""The program of the tasks of word_count.py, which needs only the standard library.

    word_count_steps.py map OUTPUT PATH:BEGIN:END...     count the words of parts of files
    word_count_steps.py reduce OUTPUT COUNTS...          add counts up

A part is the lines that begin within its bytes. Counts are written under another name first, so
that a file under its own name is complete.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_WORD = re.compile(r"\w+")


def count_lines(lines: Iterable[bytes]) -> Counter[str]:
    """Return how often each word is in `lines`, in lower case."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(_WORD.findall(line.decode(errors="replace").lower()))
    return counts


def lines_of(path: str, begin: int, end: int) -> Iterable[bytes]:
    """Yield the lines of `path` that begin at or after `begin` and before `end`."""
    with Path(path).open("rb") as file:
        if begin:
            file.seek(begin - 1)
            file.readline()
        while file.tell() < end and (line := file.readline()):
            yield line


def map_step(parts: Iterable[str]) -> Counter[str]:
    """Return the counts of all `parts`."""
    counts: Counter[str] = Counter()
    for part in parts:
        path, begin, end = part.rsplit(":", 2)
        counts.update(count_lines(lines_of(path, int(begin), int(end))))
    return counts


def reduce_step(paths: Iterable[str]) -> Counter[str]:
    """Return the sum of the counts in all `paths`."""
    counts: Counter[str] = Counter()
    for path in paths:
        counts.update(json.loads(Path(path).read_text()))
    return counts


def main(step: str, output: str, *inputs: str) -> None:
    """Do one step and write its counts to `output`."""
    counts = {"map": map_step, "reduce": reduce_step}[step](inputs)
    whole = Path(output)
    part = whole.with_suffix(".part")
    part.write_text(json.dumps(counts))
    part.replace(whole)


if __name__ == "__main__":
    main(*sys.argv[1:])
