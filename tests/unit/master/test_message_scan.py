"""Messages are bounded and counted from their bytes, before anything is parsed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
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
from croupier.master.wire import from_agent, from_framework
from croupier.master.wire.from_operator import changes_from_wire
from croupier.model import ids
from croupier.model.errors import InvalidRequest
from croupier.net.transport import TO_SERVER_BYTES
from croupier.v1 import agent_pb2, framework_pb2, operator_pb2, resources_pb2, task_pb2
from croupier.wire import resources as resources_wire
from croupier.wire import task as task_wire
from tests.fuzz.contract import all_messages, all_methods
from tests.fuzz.floods import CALL_BYTES, Flood, all_floods, delimited, heartbeats
from tests.fuzz.test_generators import source
from tests.fuzz.wire_bytes import damaged
from tests.harness.off_the_wire import call_from_wire, report_from_wire

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


# Repeated fields are counted before any entry is read.


SESSION = SessionId(1)
MANY = 100_000


@pytest.fixture(autouse=True)
def _nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    task_wire.task_from_wire(task_pb2.TaskInfo())  # Shapes that were read are kept: no resources.

    def read(*_: object) -> None:
        raise AssertionError("an entry was read")

    def read_all(pairs: Iterable[object], *_: object) -> None:
        for pair in pairs:
            read(pair)

    monkeypatch.setattr(resources_wire, "by_name", read_all)
    for module, name in (
        (from_framework, "task_from_wire"),
        (ids, "AgentId"),
        (ids, "OfferId"),
        (from_agent, "task_from_wire"),
        (from_agent, "status_from_wire"),
        (resources_wire, "make_ranges"),
        (task_wire, "resources_from_wire"),
    ):
        monkeypatch.setattr(module, name, read)


def _accept(operations: int, tasks: int) -> framework_pb2.Call:
    call = framework_pb2.Call(seq=1)
    for _ in range(operations):
        call.accept.operations.add().launch.tasks.extend([task_pb2.TaskInfo()] * tasks)
    return call


@cache
def _named() -> list[framework_pb2.Call]:
    updates = [framework_pb2.Acknowledge.Update()] * MANY
    return [
        _accept(1, MANY),
        _accept(MANY, 0),
        _accept(500, 3),
        framework_pb2.Call(seq=1, accept=framework_pb2.Accept(offer_ids=[""] * MANY)),
        framework_pb2.Call(seq=1, decline=framework_pb2.Decline(offer_ids=[""] * MANY)),
        framework_pb2.Call(seq=1, acknowledge=framework_pb2.Acknowledge(updates=updates)),
        framework_pb2.Call(seq=1, reconcile=framework_pb2.Reconcile(task_ids=[""] * MANY)),
    ]


@pytest.mark.parametrize("number", range(len(_named())))
def test_a_call_that_names_too_much_is_not_read(number: int) -> None:
    call = call_from_wire(SESSION, _named()[number]).call
    assert isinstance(call, calls.Malformed)
    assert "more than" in str(call.error)
    assert len(call.task_ids) <= 1_000


def test_an_agent_that_lists_too_much_is_not_read() -> None:
    updates = agent_pb2.StatusUpdates(statuses=[task_pb2.TaskStatus()] * MANY)
    with pytest.raises(InvalidRequest, match="updates in one report"):
        report_from_wire(SESSION, agent_pb2.Report(updates=updates))
    register = agent_pb2.Register(tasks=[agent_pb2.AgentTask()] * (MANY + 1))
    with pytest.raises(InvalidRequest, match="tasks of one agent"):
        report_from_wire(SESSION, agent_pb2.Report(register=register))


def test_parts_of_a_role_are_counted() -> None:
    change = operator_pb2.RoleChange(role="r", parts=[operator_pb2.RoleChange.PART_WEIGHT] * MANY)
    with pytest.raises(InvalidRequest, match="parts of a role"):
        changes_from_wire([change])


def test_amounts_and_tasks_are_counted() -> None:
    scalars = [resources_pb2.NamedScalar(name="a")] * MANY
    for wire in (
        resources_pb2.Resources(scalars=scalars),
        resources_pb2.Resources(ranges=[resources_pb2.NamedRanges()] * MANY),
        resources_pb2.Resources(sets=[resources_pb2.NamedSet()] * MANY),
    ):
        with pytest.raises(InvalidRequest, match="more than 64"):
            resources_wire.resources_from_wire(wire)
    ranges = resources_pb2.NamedRanges(ranges=[resources_pb2.Range()] * MANY)
    with pytest.raises(InvalidRequest, match="more than 1000 ranges"):
        resources_wire._ranges_from_wire(ranges)
    for task in (
        task_pb2.TaskInfo(command=task_pb2.Command(argv=[""] * MANY)),
        task_pb2.TaskInfo(command=task_pb2.Command(environment={str(n): "" for n in range(MANY)})),
        task_pb2.TaskInfo(labels=[task_pb2.Label()] * MANY),
    ):
        with pytest.raises(InvalidRequest, match="more than"):
            task_wire.task_from_wire(task)
    with pytest.raises(InvalidRequest, match="demands"):
        task_wire.demands_from_wire([framework_pb2.Demand()] * MANY)
