"""Every type of event and line round-trips through the event log."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.master.core import calls
from croupier.master.core.events import Read
from croupier.master.core.step import Event
from croupier.master.eventlog import codec, lines
from croupier.master.eventlog.codec import CODEC, NAMES, as_json, read_line
from croupier.master.eventlog.lines import LOGGED, Head, Known, LogEntry
from croupier.model.codec import Codec, Undecodable
from tests.harness.effort import portion
from tests.harness.recorded import sealed
from tests.harness.values import values_of

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
