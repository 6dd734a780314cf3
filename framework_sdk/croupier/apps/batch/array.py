"""Arrays: one task of the file, run once for each value of `{i}`. Pure."""

from __future__ import annotations

import re
from typing import Final

from croupier.apps.job_file import Section
from croupier.model.errors import InvalidRequest

MAX_TASKS: Final = 100_000
MAX_VALUE: Final = 100
PLACEHOLDER: Final = "{i}"
_RANGE: Final = re.compile(r"(-?\d{1,12})-(-?\d{1,12})(?::(\d{1,12}))?\Z", re.ASCII)
_FORMS: Final = "a number, a range such as '1-100' or '0-90:10', or a list"


def read_array(section: Section) -> tuple[str, ...] | None:
    """Return the values of `{i}`; None for a task that is no array.

    Raises:
        InvalidRequest: if there are none or too many, or one is given twice or cannot be a value.
    """
    value = section.raw("array")
    if "array" not in section:
        return None
    if isinstance(value, str):
        return section.checked(lambda: parse_range(value), "array")
    if isinstance(value, int) and not isinstance(value, bool):
        count = section.whole("array", 0, least=1, most=MAX_TASKS)
        return tuple(map(str, range(count)))
    if not isinstance(value, list):
        raise section.unexpected("array", _FORMS)
    return section.checked(lambda: _listed(value), "array")


def parse_range(text: str) -> tuple[str, ...]:
    """Return the numbers of `FIRST-LAST` or `FIRST-LAST:STEP`, with the last one.

    Raises:
        InvalidRequest: if it has another form, or there are none or too many.
    """
    match = _RANGE.match(text.strip())
    if match is None:
        raise InvalidRequest(f"{text[:80]!r} is not {_FORMS}")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step < 1 or last < first:
        raise InvalidRequest(f"{text!r} holds no number")
    if (last - first) // step >= MAX_TASKS:
        raise InvalidRequest(f"{text!r} has more than {MAX_TASKS} values")
    return tuple(map(str, range(first, last + 1, step)))


def _listed(values: list[object]) -> tuple[str, ...]:
    if not 1 <= len(values) <= MAX_TASKS:
        raise InvalidRequest(f"an array has 1 to {MAX_TASKS} values")
    seen: dict[str, None] = {}
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InvalidRequest(f"value {index} is not a text or a number")
        text = str(value)
        if not 1 <= len(text) <= MAX_VALUE or not text.isprintable() or "]" in text:
            raise InvalidRequest(
                f"value {index} is not 1 to {MAX_VALUE} printable characters without ']'"
            )
        if text in seen:
            raise InvalidRequest(f"{text!r} is given twice")
        seen[text] = None
    return tuple(seen)
