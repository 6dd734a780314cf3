"""Every type of event and line round-trips through the event log, with small values."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from fractions import Fraction
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core import calls
from croupier.master.core.events import Read
from croupier.master.core.step import Event
from croupier.master.core.usage_buckets import DAY_MS, HOUR_MS
from croupier.master.core.usage_records import UsageRecord
from croupier.master.eventlog import codec, lines
from croupier.master.eventlog.codec import CODEC, NAMES, as_json, read_line
from croupier.master.eventlog.lines import LOGGED, Head, Known, LogEntry
from croupier.model.attributes import Constraint, Operator
from croupier.model.codec import Codec, Undecodable
from croupier.model.errors import CroupierError
from croupier.model.resources import Resources
from tests.harness.effort import portion
from tests.harness.recorded import sealed

_WORDS = st.from_regex(r"[a-z][a-z0-9_.-]{0,6}", fullmatch=True)
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


_INTEGERS = st.integers(0, 2**63)
_AMOUNTS = st.dictionaries(TEXT, _INTEGERS, max_size=2)
_USAGE_RECORDS = st.builds(
    lambda number, length_ms, names, numbers: UsageRecord(
        number * length_ms, length_ms, *names, *numbers
    ),
    st.integers(0, 10**6),
    st.sampled_from([HOUR_MS, DAY_MS]),
    st.tuples(*[TEXT] * 4),
    st.tuples(*[_AMOUNTS] * 3, *[_INTEGERS] * 2, *[_AMOUNTS] * 3),
)


_SPECIAL: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: _INTEGERS,
    # No -0.0: it equals the default 0.0 of a field, and is therefore not encoded.
    float: st.floats(-1e6, 1e15).map(lambda value: value + 0.0),
    bool: st.booleans(),
    types.NoneType: st.none(),
    Resources: st.dictionaries(
        _WORDS, st.one_of(st.integers(0, 2**53), _RANGES, _ITEMS), max_size=3
    ).map(_resources),
    Constraint: st.builds(
        Constraint, _WORDS, st.sampled_from(Operator), st.sampled_from(["", "r.*"])
    ),
    CroupierError: st.builds(
        lambda cls, text: cls(text),
        st.sampled_from([CroupierError, *CroupierError.__subclasses__()]).filter(
            lambda cls: cls.__module__ == CroupierError.__module__
        ),
        TEXT,
    ),
    bytes: st.binary(max_size=8),
    PreemptionRules: st.builds(
        PreemptionRules,
        st.booleans(),
        st.fractions(Fraction(1, 1000), 1, max_denominator=1000),
        st.floats(0, 100),
    ),
    UsageRecord: _USAGE_RECORDS,
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


EXACT = Codec(NAMES)


@pytest.mark.parametrize("cls", LOGGED, ids=lambda cls: cls.__name__)
@settings(max_examples=portion(40), deadline=None)
@given(data=st.data())
def test_every_event_round_trips(cls: type, data: st.DataObject) -> None:
    event = data.draw(values_of(cls))
    text = as_json(EXACT.encoder(cls)(event))
    back = EXACT.decoder(cls)(json.loads(text))
    if isinstance(getattr(event, "call", None), calls.Malformed):
        # Errors are equal only to themselves, so their representations are compared.
        assert repr(back) == repr(event)
    else:
        assert back == event
    encode = codec.event_encoder()
    written = codec.write_event({"at": 1.5, "event": encode(event), "did": [["a", "b"]]})
    entry = read_line(written)
    assert isinstance(entry, LogEntry)
    assert type(entry.event) is cls
    # Commands are left out in the same way again.
    assert encode(entry.event) == encode(event)


def test_all_events_but_queries_are_logged() -> None:
    """A new type of event needs tags and a form, or `event_encoder` refuses it."""
    assert set(LOGGED) == set(get_args(Event)) - {Read}
    codec.event_encoder()
    with pytest.raises(TypeError, match="no form"):
        CODEC.encoder(Any)


@pytest.mark.parametrize("cls", [Head, *get_args(Known)], ids=lambda cls: cls.__name__)
@settings(max_examples=portion(30), deadline=None)
@given(data=st.data())
def test_heads_and_states_round_trip(cls: type, data: st.DataObject) -> None:
    line = data.draw(values_of(cls))
    if isinstance(line, Head):
        line = replace(line, format=lines.FORMAT)
    text = codec.write_line(line)
    back = read_line(text)
    assert not isinstance(back, LogEntry)
    # Commands of tasks in a registry are left out in the same way again.
    assert codec.write_line(back) == text
    if not (isinstance(line, Head) and line.registry and line.registry.tasks):
        assert back == line


@settings(max_examples=portion(300), deadline=None)
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(
                    ["at", "event", "did", "decided", "kind", "head", "session", "task", "call"]
                ),
                st.one_of(inner, st.sampled_from([cls.__name__ for cls in LOGGED])),
                max_size=5,
            ),
        ),
    )
)
def test_arbitrary_json_is_decoded_or_refused(value: Any) -> None:
    try:
        line = read_line(sealed(json.dumps(value).encode()))
    except Undecodable:
        return
    assert isinstance(line, LogEntry)
