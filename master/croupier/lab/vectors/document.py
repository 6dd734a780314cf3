"""Files of vectors: read text into `Vector`s, or explain the error.

Rule: an error of the file fails the whole file; an error of one vector fails that vector only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any, TypeVar, cast

from croupier.lab.vectors.vector import (
    Amounts,
    Group,
    Unreadable,
    Vector,
    count,
    in_range,
    not_negative,
    positive,
    shortened,
)
from croupier.model.errors import CroupierError

T = TypeVar("T")
VERSION = 1
FIELDS = frozenset(field.name for field in fields(Vector)) - {"are_scalar", "others"} | {"tree"}
_MAX_MACHINES = 100_000
_MAX_CLIENTS = 5_000
_MAX_DEPTH = 32
# Levels of lists and objects. No field of a vector needs more than a few.
_MAX_NESTING = 100


class Malformed(CroupierError):
    """A file does not follow the schema."""


def read_document(text: str) -> list[object]:
    """Return the vectors of a file as parsed JSON; raises Malformed if it breaks the schema."""
    try:
        document = json.loads(
            text,
            parse_float=lambda digits: Fraction(in_range(digits)),
            parse_int=lambda digits: int(in_range(digits)),
            parse_constant=_refuse_constant,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error}") from None
    except Unreadable as error:
        raise Malformed(str(error)) from None
    except RecursionError:
        raise Malformed("nested too deeply") from None
    if not isinstance(document, dict):
        raise Malformed("a file of vectors is an object with `schema` and `vectors`")
    unknown = document.keys() - {"schema", "vectors"}
    if unknown:
        raise Malformed(f"unknown key {shortened(repr(min(unknown)))} beside `vectors`")
    schema = document.get("schema", {"version": VERSION})
    if not isinstance(schema, dict) or schema.get("version") != VERSION:
        raise Malformed(f"`schema.version` is not {VERSION}, the only one known here")
    vectors = document.get("vectors")
    if not isinstance(vectors, list):
        raise Malformed("`vectors` is missing, or not a list")
    return vectors


def read_vector(found: object) -> Vector:
    """Return one vector with every field checked; raises Unreadable if it breaks the schema."""
    fields = _mapping(found, "a vector")
    _check_nesting(fields)
    unknown = sorted(fields.keys() - FIELDS)
    if unknown:
        raise Unreadable(f"unknown field {', '.join(shortened(repr(name)) for name in unknown)}")
    vector = _Reader(fields).read()
    _check_names(vector)
    return vector


def _check_nesting(value: object) -> None:
    """Refuse a value nested too deeply for readers; Python's own bound depends on its version."""
    level: list[object] = [value]
    for _ in range(_MAX_NESTING):
        level = [child for each in level for child in _children(each)]
        if not level:
            return
    raise Unreadable("nested too deeply")


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def name_of(found: object, index: int) -> str:
    """Return the name of a vector that may be unreadable."""
    name = found.get("name") if isinstance(found, dict) else None
    return shortened(name) if isinstance(name, str) and name else f"vector {index + 1}"


class _Reader:
    """Reads a vector's fields; absent and null are the same."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields
        self._width = 0

    def read(self) -> Vector:
        name, policy, mode = (self._text(field) for field in ("name", "policy", "mode"))
        if not (name and policy and mode):
            raise Unreadable("`name`, `policy` and `mode` are required")
        resources = self._names("resources")
        if not resources:
            raise Unreadable("`resources` is empty or missing")
        if len(set(resources)) < len(resources):
            raise Unreadable("`resources` names one twice")
        self._width = len(resources)
        expected = _mapping(self._fields.get("expected"), "`expected`")
        if not expected:
            raise Unreadable("`expected` is empty: there is nothing to check")
        capacity = self._fields.get("capacity")
        weights, scalar = self._weights()
        active = self._fields.get("active")
        return Vector(
            name=name,
            source=self._text("source"),
            policy=policy,
            mode=mode,
            resources=resources,
            capacity=() if capacity is None else self._amounts(capacity, "`capacity`"),
            nodes=self._nodes(),
            demands=self._by_path("demands", self._amounts),
            weights=weights,
            are_scalar=scalar,
            backlog=self._by_path("backlog", _optional(not_negative)),
            tie_break=self._names("tie_break"),
            events=self._names("events"),
            expected=expected,
            tolerance=_optional(not_negative)(self._fields.get("tolerance"), "`tolerance`")
            or Fraction(0),
            note=self._text("note"),
            also=self._names("also"),
            guarantee=self._guarantees(),
            initial=self._by_path("initial", count),
            usage=self._by_path("usage", self._amounts),
            hints=self._by_path("hints", self._amounts),
            active=None if active is None else frozenset(self._names("active")),
            placement=self._text("placement") or None,
        )

    def _text(self, field: str) -> str:
        value = self._fields.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise Unreadable(f"`{field}` is {shortened(repr(value))}, not a text")
        return value

    def _names(self, field: str) -> tuple[str, ...]:
        value = self._fields.get(field)
        if value is None:
            return ()
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            raise Unreadable(f"`{field}` is not a list of texts")
        return tuple(listed)

    def _by_path(self, field: str, read: Callable[[object, str], T]) -> dict[str, T]:
        value = self._fields.get(field)
        found = {} if value is None else _mapping(value, f"`{field}`")
        if len(found) > _MAX_CLIENTS:
            raise Unreadable(f"`{field}` has over {_MAX_CLIENTS} entries")
        for path in found:
            parts = path.split("/")
            if "" in parts or len(parts) > _MAX_DEPTH:
                raise Unreadable(
                    f"`{field}` has {shortened(repr(path))}, which is not a path of at most"
                    f" {_MAX_DEPTH} names"
                )
        return {path: read(item, f"`{field}` of {shortened(path)}") for path, item in found.items()}

    def _amounts(self, value: object, what: str) -> Amounts:
        if not isinstance(value, list) or len(value) != self._width:
            raise Unreadable(f"{what} is not a list of {self._width} numbers, one per resource")
        return tuple(not_negative(item, what) for item in value)

    def _nodes(self) -> tuple[Group, ...] | None:
        value = self._fields.get("nodes")
        if value is None:
            return None
        if not isinstance(value, list):
            raise Unreadable("`nodes` is neither null nor a list")
        groups = tuple(self._group(item) for item in value)
        if sum(group.count for group in groups) > _MAX_MACHINES:
            raise Unreadable(f"`nodes` has over {_MAX_MACHINES} machines")
        return groups

    def _group(self, value: object) -> Group:
        what = "an entry of `nodes`"
        fields = _check_keys(_mapping(value, what), {"count", "capacity", "slots"}, what)
        return Group(
            count(fields.get("count", 1), "`count` of `nodes`"),
            self._amounts(fields.get("capacity"), "`capacity` of `nodes`"),
            _optional(count)(fields.get("slots"), "`slots` of `nodes`"),
        )

    def _weights(self) -> tuple[dict[str, Amounts], frozenset[str]]:
        found = self._by_path("weights", lambda value, _: value)
        for path, settings in self._tree().items():
            if path in found and "weight" in settings:
                raise Unreadable(f"{shortened(path)} has a weight in `weights` and in `tree`")
            found.setdefault(path, settings.get("weight", 1))
        scalar = frozenset(path for path, value in found.items() if not isinstance(value, list))
        return {path: self._weight(path, value) for path, value in found.items()}, scalar

    def _weight(self, path: str, value: object) -> Amounts:
        what = f"the weight of {shortened(path)}"
        if not isinstance(value, list):
            return (positive(value, what),) * self._width
        if len(value) != self._width:
            raise Unreadable(f"{what} is not one number per resource")
        return tuple(positive(item, what) for item in value)

    def _tree(self) -> dict[str, Mapping[str, object]]:
        def settings(value: object, what: str) -> Mapping[str, object]:
            return _check_keys(_mapping(value, what), {"weight", "guarantee"}, what)

        return self._by_path("tree", settings)

    def _guarantees(self) -> dict[str, Amounts]:
        found = self._by_path("guarantee", self._amounts)
        for path, settings in self._tree().items():
            if settings.get("guarantee") is not None:
                what = f"`guarantee` of {shortened(path)}"
                if path in found:
                    raise Unreadable(f"{what} is given twice")
                found[path] = self._amounts(settings["guarantee"], what)
        return found


def _check_names(vector: Vector) -> None:
    """Refuse a path that is not a client, or a pool where pools are allowed."""
    clients, pools = set(vector.clients), set(vector.pools())
    both = clients & pools
    if both:
        raise Unreadable(f"{shortened(min(both))} is a client, and a pool of other clients")
    for field, named, known in (
        ("demands", vector.demands, clients),
        ("usage", vector.usage, clients),
        ("backlog", vector.backlog, clients),
        ("initial", vector.initial, clients),
        ("hints", vector.hints, clients),
        ("active", vector.active or (), clients),
        ("weights or tree", vector.weights, clients | pools),
        ("guarantee", vector.guarantee, clients | pools),
        ("tie_break", vector.tie_break, clients | pools),
    ):
        unknown = sorted(set(named) - known)
        if unknown:
            kind = "a client" if known is clients else "a client or a pool of clients"
            raise Unreadable(f"`{field}` names {shortened(unknown[0])}, which is not {kind}")
    if len(set(vector.tie_break)) < len(vector.tie_break):
        raise Unreadable("`tie_break` has a name twice")


def _mapping(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise Unreadable(f"{what} is missing, or not an object")
    return cast("Mapping[str, object]", value)


def _check_keys(fields: Mapping[str, object], known: set[str], what: str) -> Mapping[str, object]:
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise Unreadable(f"{what} has the unknown key {shortened(repr(unknown[0]))}")
    return fields


def _optional(read: Callable[[object, str], T]) -> Callable[[object, str], T | None]:
    return lambda value, what: None if value is None else read(value, what)


def _refuse_constant(text: str) -> Any:
    raise Unreadable(f"{text} is not a number of JSON")


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Unreadable(f"an object has the key {shortened(repr(twice))} twice")
    return found
