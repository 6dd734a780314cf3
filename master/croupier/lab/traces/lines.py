"""Lines of a trace file, plain or gzipped."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path

from croupier.model.errors import InvalidRequest


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, from 1, without line ends and without empty lines.

    Raises:
        InvalidRequest: if the file cannot be read as text.
    """
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if _is_gzip(path)
            else path.open(encoding="utf-8") as file
        ):
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path.name} cannot be read: {error}") from None


def find(data: Path, names: Iterable[str], help_: str) -> Path:
    """Return the first of `names`, plain or with `.gz`, in `data`; or `data`, if a file.

    Raises:
        InvalidRequest: if there is none; the message ends with `help_`.
    """
    if data.is_file():
        return data
    wanted = list(names)
    for name in wanted:
        for path in (data / name, data / f"{name}.gz"):
            if path.is_file():
                return path
    raise InvalidRequest(f"--data {data}: there is no {' or '.join(wanted)}. {help_}")


def whole(path: Path, number: int, name: str, text: str) -> int:
    """Read a whole number that is not negative.

    Raises:
        InvalidRequest: if `text` is not one; the message names file, line and column.
    """
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    raise InvalidRequest(
        f"{path.name}, line {number}: {name} is {text[:40]!r}, not a whole number from 0"
    )


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"
