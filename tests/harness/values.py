"""Strategies for small values of a type, as conversions from the wire return them."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from croupier.master.allocator.starvation import PreemptionRules
from croupier.model.attributes import Constraint, Operator
from croupier.model.errors import CroupierError
from croupier.model.resources import Resources

NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,6}", fullmatch=True)
TEXT = st.text(max_size=6)
_ITEMS = st.frozensets(st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True), min_size=1, max_size=3)
_RANGES = st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True).map(
    lambda starts: tuple((20 * start, 20 * start + 5) for start in starts)
)


def _resources(amounts: dict[str, Any]) -> Resources:
    return Resources(
        {n: a for n, a in amounts.items() if isinstance(a, int)},
        {n: a for n, a in amounts.items() if isinstance(a, tuple)},
        {n: a for n, a in amounts.items() if isinstance(a, frozenset)},
    )


_SPECIAL: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(0, 2**63),
    # No -0.0: it equals the default 0.0 of a field, and is therefore not encoded.
    float: st.floats(-1e6, 1e15).map(lambda value: value + 0.0),
    bool: st.booleans(),
    types.NoneType: st.none(),
    Resources: st.dictionaries(
        NAMES, st.one_of(st.integers(0, 2**53), _RANGES, _ITEMS), max_size=3
    ).map(_resources),
    Constraint: st.builds(
        Constraint, NAMES, st.sampled_from(Operator), st.sampled_from(["", "r.*"])
    ),
    CroupierError: st.builds(
        lambda cls, text: cls(text),
        st.sampled_from([CroupierError, *CroupierError.__subclasses__()]).filter(
            lambda cls: cls.__module__ == CroupierError.__module__
        ),
        TEXT,
    ),
    PreemptionRules: st.builds(
        PreemptionRules,
        st.booleans(),
        st.fractions(Fraction(1, 1000), 1, max_denominator=1000),
        st.floats(0, 100),
    ),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of the type `hint`; fields of a dataclass often have their defaults."""
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    if hint in _SPECIAL:
        return _SPECIAL[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(each) for each in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[1:] == (...,):
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, args))
    if origin is frozenset:
        return st.frozensets(values_of(args[0]), max_size=2)
    if origin in (dict, Mapping):
        return st.dictionaries(*map(values_of, args), max_size=2)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    hints = get_type_hints(hint)
    given = (each for each in dataclasses.fields(hint) if each.init)
    return st.builds(hint, **{each.name: _field(each, hints[each.name]) for each in given})


def _field(field: dataclasses.Field[Any], hint: Any) -> st.SearchStrategy[Any]:
    value = values_of(hint)
    if field.default is not dataclasses.MISSING:
        return st.one_of(st.just(field.default), value)
    if field.default_factory is not dataclasses.MISSING:
        factory: Callable[[], Any] = field.default_factory
        return st.one_of(st.builds(factory), value)
    return value
