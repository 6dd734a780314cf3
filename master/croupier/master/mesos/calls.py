"""Calls of Mesos' schedulers, as calls of Croupier's frameworks.

A call is a message of `framework.proto` with the same meaning, so it is checked and decided as the
calls of the SDK are.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final

from croupier.master.mesos.events import sequence_in
from croupier.master.mesos.executors import Executors
from croupier.master.mesos.offers import Offers
from croupier.master.mesos.tasks import kill_policy_from_json, task_from_json
from croupier.mesos.fields import Json, data_of, entries, entry, id_of, ids_of, number, text, texts
from croupier.model.errors import InvalidRequest
from croupier.model.ids import DEFAULT_ROLE
from croupier.model.limits import MAX_NAMED, MAX_OFFERS_PER_CALL, MAX_TASKS_PER_ACCEPT, MAX_WAIT_S
from croupier.process.logging import get_logger
from croupier.process.time_slice import TimeSlice
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import task_pb2
from croupier.wire.resources import check_count

# The lease of offers that gateway frameworks ask for: the longest that the master grants.
LEASE_MS: Final = 3_600_000
# A framework without a name gets this one.
UNNAMED: Final = "unnamed"

_log = get_logger("croupier.mesos")


@dataclass(frozen=True, slots=True)
class Known:
    """What the calls of a framework refer to."""

    executors: Executors
    offers: Offers


@dataclass(slots=True)
class Translated:
    """A call on its way to the core.

    Attributes:
        wire: the message; None if there is nothing to decide.
        agents: the agents on which the tasks of an ACCEPT were to run, by the tasks' ids.
        grouped: tasks of an ACCEPT that are of a group.
        refused: tasks of an ACCEPT that have no form in Croupier, and why.
        started: tasks of an ACCEPT that are executors.
        executors: executors, by the tasks of the ACCEPT that they run.
        operations: the ids of operations of an ACCEPT, empty for none, by their holds.
        operations_refused: the ids of operations that have no form in Croupier, and why.
        reconciled: the task of a KILL; its status is the answer if it is unknown.
    """

    wire: pb.Call | None = None
    agents: dict[str, str] = field(default_factory=dict)
    grouped: set[str] = field(default_factory=set)
    refused: list[tuple[str, InvalidRequest]] = field(default_factory=list)
    started: set[str] = field(default_factory=set)
    executors: dict[str, str] = field(default_factory=dict)
    operations: dict[str, str] = field(default_factory=dict)
    operations_refused: list[tuple[str, str]] = field(default_factory=list)
    reconciled: str = ""

    @property
    def is_acknowledgement(self) -> bool:
        """Whether it acknowledges updates."""
        return self.wire is not None and self.wire.HasField("acknowledge")


def subscribe_from_json(of: Json, client_id: str) -> pb.Subscribe:
    """Return the message for a SUBSCRIBE."""
    subscribe = entry(of, "subscribe")
    info = entry(subscribe, "framework_info")
    framework = pb.FrameworkInfo(
        framework_id=id_of(of, "framework_id") or id_of(info, "id"),
        name=text(info, "name") or UNNAMED,
        roles=texts(info, "roles") or [text(info, "role") or DEFAULT_ROLE],
        failover_timeout_ms=_wait_ms(number(info, "failover_timeout")),
        hostname=text(info, "hostname"),
        webui_url=text(info, "webui_url"),
    )
    return pb.Subscribe(
        framework=framework,
        client_id=client_id,
        offer_lease_ms=LEASE_MS,
        suppressed_roles=texts(subscribe, "suppressed_roles"),
        takes_reconciled=True,
    )


def capabilities_of(of: Json) -> frozenset[str]:
    """Return the capabilities that a SUBSCRIBE names."""
    info = entry(of, "subscribe", "framework_info")
    return frozenset(text(each, "type") for each in entries(info, "capabilities"))


async def translate(of: Json, known: Known) -> Translated:
    """Return a call other than SUBSCRIBE; its tasks are converted in slices.

    `known` is of its framework.

    Raises:
        InvalidRequest: if it is malformed.
    """
    kind = text(of, "type")
    fields = entry(of, kind.lower())
    if kind == "ACCEPT":
        return await _accept(fields, known)
    return Translated() if kind in _IGNORED else _TRANSLATORS[kind](fields, known)


def in_parts(wire: pb.Call) -> list[pb.Call]:
    """Return a call as the core takes it: a long DECLINE or RECONCILE is several calls."""
    offer_ids, filters = wire.decline.offer_ids, wire.decline.filters
    if len(offer_ids) > MAX_OFFERS_PER_CALL:
        parts = _parts(offer_ids, MAX_OFFERS_PER_CALL)
        return [pb.Call(decline=pb.Decline(offer_ids=part, filters=filters)) for part in parts]
    if len(task_ids := wire.reconcile.task_ids) > MAX_NAMED:
        parts = _parts(task_ids, MAX_NAMED)
        return [pb.Call(reconcile=pb.Reconcile(task_ids=part)) for part in parts]
    return [wire]


def check_form(of: Json) -> None:
    """Check that a call has a known type, the field of that type, and one framework id.

    Raises:
        InvalidRequest: if it has not.
    """
    kind = text(of, "type")
    if kind not in _KINDS:
        raise InvalidRequest(f"Failed to validate scheduler::Call: unknown type {kind[:80]!r}")
    if kind not in _WITHOUT_FIELD and not isinstance(of.get(kind.lower()), dict):
        raise InvalidRequest(
            f"Failed to validate scheduler::Call: Expecting '{kind.lower()}' to be present"
        )
    named = {
        id_of(of, "framework_id"),
        id_of(entry(of, "subscribe", "framework_info"), "id"),
    }
    if kind == "SUBSCRIBE" and len(named - {""}) > 1:
        raise InvalidRequest("'framework_id' differs from 'subscribe.framework_info.id'")


async def _accept(of: Json, known: Known) -> Translated:
    call = Translated(pb.Call())
    assert call.wire is not None
    accept = call.wire.accept
    accept.offer_ids.extend(ids_of(of, "offer_ids"))
    _read_filters(accept.filters, of)
    operations = entries(of, "operations")
    check_count(len(accept.offer_ids), MAX_OFFERS_PER_CALL, "offers in one call")
    check_count(len(operations), MAX_TASKS_PER_ACCEPT, "operations in one ACCEPT")
    # Before any executor is noted as started.
    count = _count_tasks(operations, known.executors)
    check_count(count, MAX_TASKS_PER_ACCEPT, "tasks and new executors in one ACCEPT")
    for operation in operations:
        match text(operation, "type"):
            case "LAUNCH":
                listed = entries(operation, "launch", "task_infos")
                await _launch(call, listed, known)
            case "LAUNCH_GROUP":
                await _launch_group(call, entry(operation, "launch_group"), known)
            case _:
                _operate(call, operation, known.offers)
    known.offers.ended(accept.offer_ids)
    return call


def _count_tasks(operations: list[Json], executors: Executors) -> int:
    """Return the number of tasks of an ACCEPT, with the executors that it starts."""
    tasks: list[Json] = []
    for operation in operations:
        tasks += entries(operation, "launch", "task_infos")
        tasks += entries(operation, "launch_group", "task_group", "tasks")
    named = {
        (id_of(entry(each, "executor"), "executor_id"), id_of(each, "agent_id"))
        for each in tasks
        if entry(each, "executor")
    }
    return len(tasks) + sum(executors.task_of(*each) is None for each in named)


def _operate(call: Translated, of: Json, offers: Offers) -> None:
    """Add an operation on reservations to a call; others have no form in Croupier."""
    assert call.wire is not None
    accept, kind, operation_id = call.wire.accept, text(of, "type"), id_of(of, "id")
    try:
        match kind:
            case "RESERVE":
                made = offers.reserve(of, accept.offer_ids)
                hold_id = made.hold.hold_id
            case "UNRESERVE":
                made = offers.unreserve(of, accept.offer_ids)
                hold_id = made.release.hold_ids[0]
            case _:
                raise InvalidRequest(f"the operation {kind[:80]} is not supported")
    except InvalidRequest as error:
        _log.warning("mesos_operation_refused", operation=kind[:80], error=str(error))
        call.operations_refused.append((operation_id, str(error)))
        return
    accept.operations.append(made)
    call.operations[hold_id] = operation_id


async def _launch(call: Translated, listed: list[Json], known: Known) -> None:
    """Add the tasks of a LAUNCH to a call; each that has no form in Croupier is refused alone."""
    assert call.wire is not None
    offer_ids, tasks = call.wire.accept.offer_ids, list[task_pb2.TaskInfo]()
    async for each, task_id, agent_id in _named(call, listed):
        executor = None
        try:
            known.offers.check_agent(offer_ids, agent_id)
            task = task_from_json(each)
            if entry(each, "executor"):
                executor = known.executors.add_to(task, each, agent_id)
        except InvalidRequest as error:
            call.refused.append((task_id, error))
            continue
        if executor is not None:
            tasks.append(executor)
            call.started.add(executor.task_id)
        if task.executor_id:
            call.executors[task_id] = task.executor_id
        tasks.append(task)
    if tasks:
        call.wire.accept.operations.add(launch=pb.Launch(tasks=tasks))


async def _launch_group(call: Translated, of: Json, known: Known) -> None:
    """Add a group of tasks to a call; if one has no form in Croupier, all are refused."""
    tasks: list[task_pb2.TaskInfo] = []
    wrong: dict[str, InvalidRequest] = {}
    group = task_pb2.TaskGroup(group_id=f"mesos-{token_hex(8)}")
    if text(entry(of, "executor"), "type", "DEFAULT") != "DEFAULT":
        wrong[""] = InvalidRequest("a group of tasks has the executor of the type DEFAULT")
    assert call.wire is not None
    offer_ids = call.wire.accept.offer_ids
    async for each, task_id, agent_id in _named(call, entries(of, "task_group", "tasks")):
        call.grouped.add(task_id)
        try:
            known.offers.check_agent(offer_ids, agent_id)
            if entry(each, "executor"):
                raise InvalidRequest("a task of a group has no executor of its own")
            task = task_from_json(each)
            task.group.CopyFrom(group)
            tasks.append(task)
        except InvalidRequest as error:
            wrong[task_id] = error
            tasks.append(task_pb2.TaskInfo(task_id=task_id))
    if tasks and not wrong:
        call.wire.accept.operations.add(launch_group=pb.LaunchGroup(tasks=tasks))
        return
    for task in tasks:
        first = f"its group is refused: {next(iter(wrong.values()))}"
        call.refused.append((task.task_id, wrong.get(task.task_id) or InvalidRequest(first)))


async def _named(call: Translated, listed: list[Json]) -> AsyncIterator[tuple[Json, str, str]]:
    """Yield each task with its id and its agent's id, in slices."""
    held = TimeSlice()
    for each in listed:
        if held.is_over:
            await held.give_way()
        task_id, agent_id = id_of(each, "task_id"), id_of(each, "agent_id")
        call.agents[task_id] = agent_id
        yield each, task_id, agent_id


def _decline(of: Json, known: Known) -> Translated:
    decline = pb.Decline(offer_ids=ids_of(of, "offer_ids"))
    _read_filters(decline.filters, of)
    known.offers.ended(decline.offer_ids)
    return Translated(pb.Call(decline=decline))


def _kill(of: Json, _: Known) -> Translated:
    task_id = id_of(of, "task_id")
    kill = pb.Kill(task_id=task_id, kill_policy=kill_policy_from_json(entry(of, "kill_policy")))
    return Translated(pb.Call(kill=kill), reconciled=task_id)


def _acknowledge(of: Json, _: Known) -> Translated:
    update = pb.Acknowledge.Update(
        agent_id=id_of(of, "agent_id"), task_id=id_of(of, "task_id"), sequence=sequence_in(of)
    )
    return Translated(pb.Call(acknowledge=pb.Acknowledge(updates=[update])))


def _reconcile(of: Json, _: Known) -> Translated:
    task_ids = [id_of(each, "task_id") for each in entries(of, "tasks")]
    return Translated(pb.Call(reconcile=pb.Reconcile(task_ids=task_ids)))


def _message(of: Json, known: Known) -> Translated:
    """Return a message to an executor; one to an executor that does not live is lost."""
    task_id = known.executors.task_of(id_of(of, "executor_id"), id_of(of, "agent_id"))
    if task_id is None:
        return Translated()
    message = pb.SendMessage(task_id=task_id, data=data_of(of, "data"))
    return Translated(pb.Call(send_message=message))


def _shutdown(of: Json, known: Known) -> Translated:
    """Return a kill of an executor."""
    task_id = known.executors.task_of(id_of(of, "executor_id"), id_of(of, "agent_id"))
    return Translated(None if task_id is None else pb.Call(kill=pb.Kill(task_id=task_id)))


_TRANSLATORS: Final[Mapping[str, Callable[[Json, Known], Translated]]] = {
    "DECLINE": _decline,
    "SUPPRESS": lambda of, _: Translated(pb.Call(suppress=pb.Suppress(roles=texts(of, "roles")))),
    "REVIVE": lambda of, _: Translated(pb.Call(revive=pb.Revive(roles=texts(of, "roles")))),
    "KILL": _kill,
    "ACKNOWLEDGE": _acknowledge,
    "RECONCILE": _reconcile,
    "TEARDOWN": lambda *_: Translated(pb.Call(teardown=pb.Teardown())),
    "SHUTDOWN": _shutdown,
    "MESSAGE": _message,
}
# Mesos, too, ignores REQUEST, and operations that it does not know.
_IGNORED: Final = frozenset(
    {
        "REQUEST",
        "ACCEPT_INVERSE_OFFERS",
        "DECLINE_INVERSE_OFFERS",
        "ACKNOWLEDGE_OPERATION_STATUS",
        "RECONCILE_OPERATIONS",
    }
)
_KINDS: Final = frozenset({"SUBSCRIBE", "ACCEPT", *_TRANSLATORS, *_IGNORED})
# Clients leave out the fields of these, or put their contents elsewhere.
_WITHOUT_FIELD: Final = frozenset({"TEARDOWN", "SUPPRESS", "REVIVE", "REQUEST", "RECONCILE"})


def _parts(ids: Sequence[str], most: int) -> list[Sequence[str]]:
    return [ids[start : start + most] for start in range(0, len(ids), most)]


def _read_filters(filters: pb.Filters, of: Json) -> None:
    """Read the filter of refused resources; without one, or below 0, it is the default."""
    refuse_s = number(entry(of, "filters"), "refuse_seconds", -1.0)
    if refuse_s >= 0:
        filters.refuse_ms = _wait_ms(refuse_s)


def _wait_ms(seconds: float) -> int:
    """Return a duration in milliseconds, at most a year."""
    return math.ceil(min(max(seconds, 0.0), MAX_WAIT_S) * 1000)
