"""A message is bounded and split from its bytes: nothing is parsed that is too dense."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from croupier.master.services import intake
from croupier.master.services.intake import (
    BOUNDS,
    MOST_ENTRIES,
    MOST_FIELDS,
    PIECE_BYTES,
    PIECE_ENTRIES,
    Piece,
    scan,
    split,
)
from croupier.model.errors import InvalidRequest
from croupier.net.transport import TO_SERVER_BYTES
from croupier.v1 import agent_pb2, framework_pb2
from tests.fuzz.contract import all_messages, all_methods
from tests.fuzz.floods import CALL_BYTES, Flood, all_floods, delimited, heartbeats
from tests.fuzz.test_generators import source
from tests.fuzz.wire_bytes import damaged

CALLS: Any = framework_pb2.FrameworkServiceConnectRequest.DESCRIPTOR
REPORTS: Any = agent_pb2.AgentServiceConnectRequest.DESCRIPTOR
FLOODS = all_floods(CALL_BYTES)


def merged(pieces: list[Piece], kind: Descriptor) -> bytes:
    """Parse the pieces one after the other into one message."""
    message = GetMessageClass(kind)()
    for piece in pieces:
        message.MergeFromString(piece.data)
    return message.SerializeToString(deterministic=True)


@pytest.mark.parametrize("kind", [CALLS, REPORTS], ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", range(5))
def test_pieces_are_the_message(kind: Any, seed: int) -> None:
    messages, _ = source(seed)
    for _ in range(20):
        message: Any = messages.message(kind)
        data = message.SerializeToString()
        pieces = split(data, kind)
        assert b"".join(piece.data for piece in pieces) == data
        assert merged(pieces, kind) == message.SerializeToString(deterministic=True)


def test_pieces_are_small_and_complete() -> None:
    call = framework_pb2.Call(seq=7, decline=framework_pb2.Decline(reason="x" * 200))
    many = framework_pb2.FrameworkServiceConnectRequest(calls=[call] * 4000, verdicts_seen=3)
    pieces = split(many.SerializeToString(), CALLS)
    assert len(pieces) > 10
    assert all(len(piece.data) <= PIECE_BYTES for piece in pieces)
    assert all(piece.entries <= PIECE_ENTRIES for piece in pieces)
    assert sum(piece.entries for piece in pieces) == 4001
    parsed = [framework_pb2.FrameworkServiceConnectRequest.FromString(each.data) for each in pieces]
    assert sum(len(each.calls) for each in parsed) == 4000
    assert [each.verdicts_seen for each in parsed][-1] == 3
    assert split(b"", CALLS) == [Piece(b"", 0)]


@pytest.mark.parametrize("kind", [*all_messages()], ids=lambda kind: kind.full_name)
def test_what_can_be_parsed_passes_the_scan(
    kind: Descriptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "SMALL_BYTES", 0)
    messages, values = source(6)
    for _ in range(10):
        data = messages.message(kind).SerializeToString()
        list(scan(data, kind))
        with suppress(InvalidRequest):
            list(scan(damaged(data, values.rng), kind))


@pytest.mark.parametrize(
    "flood", FLOODS, ids=lambda flood: f"{flood.method.path.rpartition('.')[2]}-{flood.name}"
)
def test_a_flood_of_every_list_is_refused_before_it_is_parsed(flood: Flood) -> None:
    kind = flood.method.request
    carried = kind in (CALLS, REPORTS)
    steps = 0

    def check() -> None:
        nonlocal steps
        pieces = split(flood.data, kind) if carried else [Piece(flood.data, 1)]
        for piece in pieces:
            for _ in scan(piece.data, kind):
                steps += 1

    with pytest.raises(InvalidRequest, match=r"more than \d+ "):
        check()
    assert steps < MOST_FIELDS / 1000


def test_half_a_million_heartbeats_are_refused_at_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (method,) = (each for each in all_methods() if each.request is CALLS)
    (flood,) = heartbeats(method)
    assert len(flood.data) == TO_SERVER_BYTES
    looked, fields_of = 0, intake.fields_of

    def counted(*given: Any) -> Any:
        nonlocal looked
        for field in fields_of(*given):
            looked += 1
            yield field

    monkeypatch.setattr(intake, "fields_of", counted)
    with pytest.raises(InvalidRequest, match="more than 4096 calls in one message"):
        split(flood.data, CALLS)
    assert looked == BOUNDS[f"{CALLS.full_name}.calls"] + 1


def test_many_fields_that_are_no_list_are_refused_too() -> None:
    call = delimited(1, b"\x08\x01" * (MOST_FIELDS + 1))
    with pytest.raises(InvalidRequest, match=f"more than {MOST_FIELDS} fields"):
        list(scan(call, CALLS))


def test_numbers_of_a_packed_list_count() -> None:
    (flood,) = (each for each in FLOODS if each.name.endswith("parts"))
    assert len(flood.data) > MOST_ENTRIES
    with pytest.raises(InvalidRequest, match=r"entries of RoleChange\.parts"):
        list(scan(flood.data, flood.method.request))


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0b",
        b"\x0a\xff",
        b"\xff" * 20,
        b"\x0d\x00",
        b"\x08" + b"\x80" * 11,
    ],
)
def test_malformed_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        framework_pb2.FrameworkServiceConnectRequest.FromString(data)
    with pytest.raises(InvalidRequest, match="cannot be parsed"):
        split(data, CALLS)
