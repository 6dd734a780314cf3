"""From a TOML or YAML file to its root section.

A key that is given twice is an error in both. YAML needs the extra `yaml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from croupier.apps.job_file.section import Section
from croupier.model.errors import InvalidRequest

MAX_BYTES: Final = 16 * 1024 * 1024
SUFFIXES: Final = (".toml", ".yaml", ".yml")


def read_job_file(path: Path) -> Section:
    """Read the root section of a job file.

    Raises:
        InvalidRequest: if it cannot be read, is over 16 MiB, or is not TOML or YAML as its suffix
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

    Raises:
        InvalidRequest: if the text is malformed.
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
