"""One table of a job file, whose values are read by key and type.

Rule: each reader checks the type, and its error names the place. An absent key gives the default.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest

T = TypeVar("T")
D = TypeVar("D")

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_SHOWN: Final = 60


class Section:
    """A table of a job file.

    Attributes:
        name: its key in the table above; empty for the root.
        place: the path to it, such as `tasks.build`; empty for the root.
        origin: the name of the file, for errors.
    """

    __slots__ = ("_values", "name", "origin", "place")

    def __init__(
        self, values: Mapping[str, Any], *, name: str = "", place: str = "", origin: str = ""
    ) -> None:
        self._values, self.name, self.place, self.origin = values, name, place, origin

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def error(self, text: str, key: str = "") -> InvalidRequest:
        """Return an error about this section, or about one of its keys."""
        place = self._place_of(key) if key else self.place
        return InvalidRequest(": ".join(part for part in (self.origin, place, text) if part))

    def check_keys(self, known: Iterable[str]) -> None:
        """Check that the section has no other keys.

        Raises:
            InvalidRequest: names the first unknown key, and the nearest known one.
        """
        names = list(known)
        for key in self._values:
            if key not in names:
                raise self.error(f"unknown key{_nearest(key, names)}", key)

    def text(self, key: str, default: D, *, choices: Iterable[str] = ()) -> str | D:
        """Return a text, which is one of `choices` if there are any.

        Raises:
            InvalidRequest: if it is something else.
        """
        value = self._values.get(key)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, str):
            raise self._unexpected(key, "a text", value)
        names = list(choices)
        if names and value not in names:
            expected = f"{value!r} is not one of {', '.join(names)}"
            raise self.error(expected + _suggestion(value, names), key)
        return value

    def whole(self, key: str, default: D, *, least: int = 0, most: int = 2**31 - 1) -> int | D:
        """Return a whole number in a range.

        Raises:
            InvalidRequest: if it is something else.
        """
        value = self._values.get(key)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._unexpected(key, "a whole number", value)
        if not least <= value <= most:
            raise self.error(f"must be between {least} and {most}, not {value}", key)
        return value

    def number(self, key: str, default: D, *, least: float = 0.0, most: float = 1e9) -> float | D:
        """Return a number in a range.

        Raises:
            InvalidRequest: if it is something else.
        """
        value = self._values.get(key)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._unexpected(key, "a number", value)
        if not (math.isfinite(value) and least <= value <= most):
            raise self.error(f"must be between {least:g} and {most:g}, not {value:g}", key)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false.

        Raises:
            InvalidRequest: if it is something else.
        """
        value = self._values.get(key)
        if value is None:
            return bool(self._default(key, default))
        if not isinstance(value, bool):
            raise self._unexpected(key, "true or false", value)
        return value

    def duration(
        self, key: str, default: D, *, least: float = 0.0, most: float = 366 * 86400.0
    ) -> float | D:
        """Return the seconds of `"30s"`, `"1h30m"` or a number of seconds.

        Raises:
            InvalidRequest: if it is something else.
        """
        value = self._values.get(key)
        if value is None:
            return self._default(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise self._unexpected(key, "a duration, such as '30s' or '5m',", value)
        seconds = self._seconds(key, value)
        if not (math.isfinite(seconds) and least <= seconds <= most):
            raise self.error(f"must be between {least:g} and {most:g} seconds, not {value}", key)
        return seconds

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one text alone counts as a list of one.

        Raises:
            InvalidRequest: if it is something else.
        """
        value = self._values.get(key)
        if value is None:
            return tuple(self._default(key, ()))
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise self._unexpected(key, "a list of texts", value)
        for index, item in enumerate(items):
            if not isinstance(item, str):
                raise self._unexpected(f"{key}[{index}]", "a text", item)
        return tuple(items)

    def pairs(self, key: str) -> dict[str, str] | None:
        """Return a table of texts; numbers count as texts. None if the key is absent.

        Raises:
            InvalidRequest: if it is something else.
        """
        section = self.section(key)
        if section is None:
            return None
        return {name: section.text_or_number(name) for name in section}

    def text_or_number(self, key: str) -> str:
        """Return a text, or the text of a number.

        Raises:
            InvalidRequest: if it is something else, or absent.
        """
        value = self._values.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._unexpected(key, "a text or a number", value)
        return value if isinstance(value, str) else str(value)

    def section(self, key: str) -> Section | None:
        """Return the table at `key`; None if the key is absent.

        Raises:
            InvalidRequest: if it is something else.
        """
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._unexpected(key, "a table", value)
        return Section(value, name=key, place=self._place_of(key), origin=self.origin)

    def required(self, key: str) -> Section:
        """Return the table at `key`.

        Raises:
            InvalidRequest: if it is something else, or absent.
        """
        section = self.section(key)
        if section is None:
            raise self.error("is missing", key)
        return section

    def sections(self) -> Iterator[Section]:
        """Return the tables in this one, such as each task in `tasks`.

        Raises:
            InvalidRequest: if a value is not a table.
        """
        for key in self._values:
            yield self.required(key)

    def raw(self, key: str) -> Any:
        """Return the value as the file has it; None if the key is absent."""
        return self._values.get(key)

    def parsed(self, key: str, parse: Callable[[str], T], default: D) -> T | D:
        """Return the text at `key` as `parse` reads it.

        Raises:
            InvalidRequest: if it is no text, or `parse` refuses it.
        """
        value = self.text(key, None)
        if value is None:
            return self._default(key, default)
        return self.checked(lambda: parse(value), key)

    def checked(self, make: Callable[[], T], key: str = "") -> T:
        """Return what `make` returns; its InvalidRequest gets the place of `key`."""
        try:
            return make()
        except InvalidRequest as error:
            raise self.error(str(error), key) from None

    def unexpected(self, key: str, expected: str) -> InvalidRequest:
        """Return the error that something else, such as `a list`, is expected at `key`."""
        return self._unexpected(key, expected, self._values.get(key))

    def _seconds(self, key: str, value: float | str) -> float:
        if not isinstance(value, str):
            return float(value)
        return self.checked(lambda: parse_duration(value), key)

    def _unexpected(self, key: str, expected: str, value: object) -> InvalidRequest:
        return self.error(f"{expected} is expected, not {_shown(value)}", key)

    def _place_of(self, key: str) -> str:
        name, bracket, index = key.partition("[")
        quoted = name if _BARE.match(name) else repr(name[:_SHOWN])
        return (f"{self.place}." if self.place else "") + quoted + bracket + index

    def _default(self, key: str, default: D) -> D:
        # YAML's `key:` without a value is None: likely a mistake, not a wish for the default.
        if key in self._values:
            raise self.error("has no value", key)
        return default


def _nearest(key: str, known: Sequence[str]) -> str:
    return _suggestion(key, known) or f"; the keys here are {', '.join(known)}"


def _suggestion(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
