"""Job files in TOML or YAML, and their tables, whose values are read by key and type.

Rule: each reader raises InvalidRequest for a value of another type or range, and the error names
the place. An absent key gives the default; a key that is given twice is an error. YAML needs the
extra `yaml`.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest

MAX_BYTES: Final = 16 * 1024 * 1024
SUFFIXES: Final = (".toml", ".yaml", ".yml")
T = TypeVar("T")
D = TypeVar("D")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_SHOWN: Final = 60


def read_job_file(path: Path) -> Section:
    """Read the root section of a job file.

    Raises InvalidRequest if it cannot be read, is over 16 MiB, or is not TOML or YAML as its suffix
    says.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidRequest(f"{path}: a job file ends in {', '.join(SUFFIXES)}")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise InvalidRequest(f"{path}: a job file has at most {MAX_BYTES // 2**20} MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: byte {error.start} is not text in UTF-8") from None
    return section_of_text(text, str(path), is_yaml=path.suffix.lower() != ".toml")


def section_of_text(text: str, origin: str = "", *, is_yaml: bool = False) -> Section:
    """Return the root section of `text`, whose errors begin with `origin`.

    Raises InvalidRequest if the text is malformed.
    """
    before = f"{origin}: " if origin else ""
    try:
        content = (_yaml if is_yaml else _toml)(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{before}{error}") from None
    except RecursionError:
        raise InvalidRequest(f"{before}it is nested too deeply") from None
    if not isinstance(content, Mapping):
        raise InvalidRequest(f"{before}a table of keys is expected at the top")
    return Section(content, origin=origin)


def _toml(text: str) -> object:
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        words = " ".join(str(error).split())
        if words.startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate")):
            where = words.rpartition(" (")[2].rstrip(")")
            raise InvalidRequest(f"{where}: a key is given twice") from None
        raise InvalidRequest(f"not TOML: {words}") from None


def _yaml(text: str) -> object:
    try:
        import yaml
    except ImportError:
        raise InvalidRequest(
            "YAML needs PyYAML: pip install 'croupier[yaml]', or write the file as TOML"
        ) from None

    class Loader(yaml.SafeLoader):
        """Refuses a key that is given twice, which YAML's own loader overwrites."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            _check_keys(node, self.construct_object)
            return super().construct_mapping(node, deep=deep)

    try:
        # Loader is a SafeLoader: it makes plain values only.
        content: object = yaml.load(text, Loader=Loader)  # noqa: S506
        return {} if content is None else content
    except yaml.YAMLError as error:
        raise InvalidRequest(f"not YAML: {_yaml_text(error)}") from None
    except (ValueError, TypeError) as error:  # such as the date 2026-13-01
        raise InvalidRequest(f"not YAML: {' '.join(str(error).split())[:200]}") from None


def _check_keys(node: Any, value_of: Callable[..., object]) -> None:
    """Check that the keys of one mapping are texts and differ. Merged keys may be overwritten."""
    seen: set[str] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = value_of(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise InvalidRequest(f"line {line}: the key {key!r} is not a text; write it in quotes")
        if key in seen:
            raise InvalidRequest(f"line {line}: the key {key!r} is given twice")
        seen.add(key)


def _yaml_text(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f" (at line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
    return " ".join(str(problem).split())[:200] + where


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
        """Check that the section has no other keys; the error names the nearest known one."""
        names = list(known)
        for key in self._values:
            if key not in names:
                nearest = _suggestion(key, names) or f"; the keys here are {', '.join(names)}"
                raise self.error(f"unknown key{nearest}", key)

    def text(self, key: str, default: D, *, choices: Iterable[str] = ()) -> str | D:
        """Return a text, which is one of `choices` if there are any."""
        value = self._typed(key, "a text", str)
        if value is None:
            return default
        names = list(choices)
        if names and value not in names:
            expected = f"{value!r} is not one of {', '.join(names)}"
            raise self.error(expected + _suggestion(value, names), key)
        return str(value)

    def whole(self, key: str, default: D, *, least: int = 0, most: int = 2**31 - 1) -> int | D:
        """Return a whole number in a range."""
        value = self._typed(key, "a whole number", int)
        if value is None:
            return default
        if not least <= value <= most:
            raise self.error(f"must be between {least} and {most}, not {value}", key)
        return int(value)

    def number(self, key: str, default: D, *, least: float = 0.0, most: float = 1e9) -> float | D:
        """Return a number in a range."""
        value = self._typed(key, "a number", int, float)
        if value is None:
            return default
        if not (math.isfinite(value) and least <= value <= most):
            raise self.error(f"must be between {least:g} and {most:g}, not {value:g}", key)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._typed(key, "true or false", bool)
        return default if value is None else bool(value)

    def duration(
        self, key: str, default: D, *, least: float = 0.0, most: float = 366 * 86400.0
    ) -> float | D:
        """Return the seconds of `"30s"`, `"1h30m"` or a number of seconds."""
        value = self._typed(key, "a duration, such as '30s' or '5m',", int, float, str)
        if value is None:
            return default
        if isinstance(value, str):
            seconds = self.checked(lambda: parse_duration(value), key)
        else:
            seconds = float(value)
        if not (math.isfinite(seconds) and least <= seconds <= most):
            raise self.error(f"must be between {least:g} and {most:g} seconds, not {value}", key)
        return seconds

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one text alone counts as a list of one, an absent key as none."""
        value = self._typed(key, "a list of texts", str, list)
        items = [value] if isinstance(value, str) else value or []
        for index, item in enumerate(items):
            if not isinstance(item, str):
                raise self.error(f"a text is expected, not {_shown(item)}", f"{key}[{index}]")
        return tuple(items)

    def pairs(self, key: str) -> dict[str, str] | None:
        """Return a table of texts; numbers count as texts. None if the key is absent."""
        section = self.section(key)
        if section is None:
            return None
        pairs: dict[str, str] = {}
        for name in section:
            value = section.raw(name)
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise section.unexpected(name, "a text or a number")
            pairs[name] = str(value)
        return pairs

    def section(self, key: str) -> Section | None:
        """Return the table at `key`; None if the key is absent."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.unexpected(key, "a table")
        return Section(value, name=key, place=self._place_of(key), origin=self.origin)

    def required(self, key: str) -> Section:
        """Return the table at `key`, which must not be absent."""
        section = self.section(key)
        if section is None:
            raise self.error("is missing", key)
        return section

    def sections(self) -> Iterator[Section]:
        """Return the tables in this one, such as each task in `tasks`."""
        for key in self._values:
            yield self.required(key)

    def raw(self, key: str) -> Any:
        """Return the value as the file has it; None if the key is absent."""
        return self._values.get(key)

    def parsed(self, key: str, parse: Callable[[str], T], default: D) -> T | D:
        """Return the text at `key` as `parse` reads it."""
        value = self.text(key, None)
        if value is None:
            return default
        return self.checked(lambda: parse(value), key)

    def checked(self, make: Callable[[], T], key: str = "") -> T:
        """Return what `make` returns; its InvalidRequest gets the place of `key`."""
        try:
            return make()
        except InvalidRequest as error:
            raise self.error(str(error), key) from None

    def unexpected(self, key: str, expected: str) -> InvalidRequest:
        """Return the error that something else, such as `a list`, is expected at `key`."""
        return self.error(f"{expected} is expected, not {_shown(self._values.get(key))}", key)

    def _typed(self, key: str, expected: str, *kinds: type) -> Any:
        """Return the value at `key`, which is of one of `kinds`; None if the key is absent."""
        value = self._values.get(key)
        if value is None:
            # YAML's `key:` without a value is None: likely a mistake, not a wish for the default.
            if key in self._values:
                raise self.error("has no value", key)
            return None
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.unexpected(key, expected)
        return value

    def _place_of(self, key: str) -> str:
        name, bracket, index = key.partition("[")
        quoted = name if _BARE.match(name) else repr(name[:_SHOWN])
        return (f"{self.place}." if self.place else "") + quoted + bracket + index


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
