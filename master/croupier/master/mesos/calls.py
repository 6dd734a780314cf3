"""Calls of Mesos' schedulers, as calls of Croupier's frameworks.

A call is a message of `framework.proto` with the same meaning, so it is checked and decided as the
calls of the SDK are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final

from croupier.master.core.frameworks import Framework
from croupier.master.core.offers import Offer
from croupier.master.mesos.amounts import is_volume
from croupier.master.mesos.events import Events, operation_update, sequence_in
from croupier.master.mesos.executors import Executors
from croupier.master.mesos.operations import OPERATIONS
from croupier.master.mesos.tasks import kill_policy_from_json, task_from_json
from croupier.master.mesos.volumes import Volumes, named_volume, volumes_on
from croupier.mesos.fields import Json, data_of, entries, entry, id_of, ids_of, number, text, texts
from croupier.model.errors import InvalidRequest
from croupier.model.ids import DEFAULT_ROLE, MAX_ID_BYTES, AgentId, OfferId, TaskId
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

# Where operations have tasks.
_TASKS: Final = {
    "LAUNCH": ("launch", "task_infos"),
    "LAUNCH_GROUP": ("launch_group", "task_group", "tasks"),
}

_log = get_logger("croupier.mesos")


@dataclass(frozen=True, slots=True)
class Known:
    """What the calls of a framework refer to."""

    framework: Callable[[], Framework | None]
    executors: Executors
    events: Events

    def offers(self, offer_ids: Iterable[str]) -> list[Offer]:
        """Return those of these offers that have not ended."""
        framework = self.framework()
        offers = {} if framework is None else framework.offers
        return [offers[OfferId(each)] for each in offer_ids if each in offers]


@dataclass(slots=True)
class Translated:
    """A call on its way to the core.

    Attributes:
        wires: the messages; none if there is nothing to decide.
        answers: events for tasks and operations of an ACCEPT that have no form in Croupier.
        agents: the agents on which the tasks of an ACCEPT were to run, by the tasks' ids.
        operations: the ids of operations of an ACCEPT, empty for none, by their holds.
        reconciled: the task of a KILL; its status is the answer if it is unknown.
    """

    wires: list[pb.Call] = field(default_factory=list)
    answers: list[Json] = field(default_factory=list)
    agents: dict[str, str] = field(default_factory=dict)
    operations: dict[str, str] = field(default_factory=dict)
    reconciled: str = ""

    def tasks(self) -> Iterator[task_pb2.TaskInfo]:
        """Yield the tasks of an ACCEPT."""
        for wire in self.wires:
            for operation in wire.accept.operations:
                yield from operation.launch.tasks
                yield from operation.launch_group.tasks


def subscribe_from_json(of: Json, client_id: str) -> pb.Subscribe:
    """Return the message for a SUBSCRIBE."""
    info = entry(of, "subscribe", "framework_info")
    framework = pb.FrameworkInfo(
        framework_id=id_of(info, "id"),
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
        suppressed_roles=texts(entry(of, "subscribe"), "suppressed_roles"),
        takes_reconciled=True,
    )


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
    reconciled = id_of(fields, "task_id") if kind == "KILL" else ""
    return Translated(_TRANSLATORS[kind](fields, known), reconciled=reconciled)


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
    info = entry(of, "subscribe", "framework_info")
    if kind == "SUBSCRIBE" and id_of(of, "framework_id") != id_of(info, "id"):
        raise InvalidRequest("'framework_id' differs from 'subscribe.framework_info.id'")


async def _accept(of: Json, known: Known) -> Translated:
    accept = pb.Accept(offer_ids=ids_of(of, "offer_ids"))
    _read_filters(accept.filters, of)
    operations = entries(of, "operations")
    check_count(len(accept.offer_ids), MAX_OFFERS_PER_CALL, "offers in one call")
    check_count(len(operations), MAX_TASKS_PER_ACCEPT, "operations in one ACCEPT")
    tasks = [task for operation in operations for task in _tasks_in(operation)]
    executors = {
        (id_of(entry(each, "executor"), "executor_id"), id_of(each, "agent_id"))
        for each in tasks
        if entry(each, "executor")
    }
    most = MAX_TASKS_PER_ACCEPT - len(executors)
    check_count(len(tasks), most, "tasks and executors in one ACCEPT")
    call, offers = Translated(), known.offers(accept.offer_ids)
    volumes: Volumes = {}
    if offers:
        volumes = volumes_on(known.events.agents.get(offers[0].agent_id), offers[0].role)
    for operation in operations:
        if text(operation, "type") in _TASKS:
            accept.operations.extend(await _launch(call, operation, offers, volumes, known))
        else:
            accept.operations.extend(_operate(call, operation, offers, volumes))
    call.wires.append(pb.Call(accept=accept))
    return call


def _tasks_in(operation: Json) -> list[Json]:
    path = _TASKS.get(text(operation, "type"))
    return [] if path is None else entries(operation, *path)


def _operate(
    call: Translated, of: Json, offers: list[Offer], volumes: Volumes
) -> list[pb.Operation]:
    """Return an operation on reservations and volumes; none if it has no form in Croupier."""
    kind, operation_id = text(of, "type"), id_of(of, "id")
    try:
        if kind not in OPERATIONS:
            raise InvalidRequest(f"the operation {kind[:80]} is not supported")
        made = OPERATIONS[kind](of, offers, volumes)
    except InvalidRequest as error:
        _log.warning("mesos_operation_refused", operation=kind[:80], error=str(error))
        call.answers += operation_update(operation_id, "ERROR", str(error))
        return []
    call.operations[made.hold.hold_id or made.release.hold_ids[0]] = operation_id
    return [made]


async def _launch(
    call: Translated, of: Json, offers: list[Offer], volumes: Volumes, known: Known
) -> list[pb.Operation]:
    """Return a LAUNCH or a LAUNCH_GROUP of the tasks that have a form in Croupier, if any have.

    The others are refused; of a group, all are.
    """
    wire, wrong, held = pb.Operation(), dict[str, InvalidRequest](), TimeSlice()
    is_group = text(of, "type") == "LAUNCH_GROUP"
    tasks = (wire.launch_group if is_group else wire.launch).tasks
    group_id = f"mesos-{token_hex(8)}" if is_group else ""
    executor = entry(of, "launch_group", "executor")
    if is_group and text(executor, "type", "DEFAULT") != "DEFAULT":
        wrong[""] = InvalidRequest("a group of tasks has the executor of the type DEFAULT")
    named, agents = list[str](), {offer.agent_id for offer in offers}
    for each in _tasks_in(of):
        if held.is_over:
            await held.give_way()
        task_id = id_of(each, "task_id")
        named.append(task_id)
        call.agents[task_id] = id_of(each, "agent_id")
        try:
            tasks.extend(_tasks(each, group_id, agents, volumes, known.executors))
        except InvalidRequest as error:
            wrong[task_id] = error
    if is_group and wrong:
        whole = InvalidRequest(f"its group is refused: {next(iter(wrong.values()))}")
        wrong = {task_id: wrong.get(task_id, whole) for task_id in named}
        del tasks[:]
    for task_id, why in wrong.items():
        refused = known.events.refused(task_id, call.agents[task_id], why, is_grouped=is_group)
        call.answers.append(refused)
    return [wire] if tasks else []


def _tasks(
    of: Json, group_id: str, agents: set[AgentId], volumes: Volumes, executors: Executors
) -> list[task_pb2.TaskInfo]:
    """Return a task, after its executor if that must start.

    `group_id`: of its group, empty for none; `agents` and `volumes`: those of its offers.

    Raises:
        InvalidRequest: if it has no form in Croupier.
    """
    agent_id = AgentId(id_of(of, "agent_id"))
    if not agents <= {agent_id}:
        raise InvalidRequest(
            f"the task names agent {agent_id[:80]!r}, but its offer is of another one"
        )
    resources = [each for each in entries(of, "resources") if not is_volume(each)]
    task = task_from_json({**of, "resources": resources})
    if agents:
        # Else it is dropped, since its offers have ended.
        _mount(task, of, volumes)
    if group_id:
        task.group.group_id = group_id
    if not entry(of, "executor"):
        return [task]
    if group_id:
        raise InvalidRequest("a task of a group has no executor of its own")
    executor = executors.add_to(task, of, agent_id)
    return [task] if executor is None else [executor, task]


def _mount(task: task_pb2.TaskInfo, of: Json, volumes: Volumes) -> None:
    """Have a task use the volumes that its description `of` names.

    Raises:
        InvalidRequest: if one is not among `volumes`.
    """
    for resource in filter(is_volume, entries(of, "resources")):
        found, volume = named_volume(resource, volumes), entry(resource, "disk", "volume")
        task.volumes.add(
            volume_id=found.hold_id,
            path=text(volume, "container_path"),
            read_only=text(volume, "mode") == "RO",
            role=found.role,
        )


def _decline(of: Json, _: Known) -> list[pb.Call]:
    filters = pb.Filters()
    _read_filters(filters, of)
    parts = _parts(ids_of(of, "offer_ids"), MAX_OFFERS_PER_CALL)
    return [pb.Call(decline=pb.Decline(offer_ids=part, filters=filters)) for part in parts]


def _kill(of: Json, _: Known) -> list[pb.Call]:
    policy = kill_policy_from_json(entry(of, "kill_policy"))
    return [pb.Call(kill=pb.Kill(task_id=id_of(of, "task_id"), kill_policy=policy))]


def _acknowledge(of: Json, _: Known) -> list[pb.Call]:
    update = pb.Acknowledge.Update(
        agent_id=id_of(of, "agent_id"), task_id=id_of(of, "task_id"), sequence=sequence_in(of)
    )
    return [pb.Call(acknowledge=pb.Acknowledge(updates=[update]))]


def _reconcile(of: Json, _: Known) -> list[pb.Call]:
    """Return calls for the tasks that are named; for all if none is."""
    named = [id_of(each, "task_id") for each in entries(of, "tasks")]
    # No task has a longer id.
    task_ids = [each for each in named if len(each) <= MAX_ID_BYTES]
    if named and not task_ids:
        return []
    return [pb.Call(reconcile=pb.Reconcile(task_ids=part)) for part in _parts(task_ids, MAX_NAMED)]


def _message(of: Json, known: Known) -> list[pb.Call]:
    data = data_of(of, "data")
    return [
        pb.Call(send_message=pb.SendMessage(task_id=task_id, data=data))
        for task_id in _executor(of, known)
    ]


def _executor(of: Json, known: Known) -> list[TaskId]:
    """Return the executor that a call names; none if it does not live, and the call is lost."""
    task_id = known.executors.task_of(id_of(of, "executor_id"), id_of(of, "agent_id"))
    return [] if task_id is None else [task_id]


_TRANSLATORS: Final[Mapping[str, Callable[[Json, Known], list[pb.Call]]]] = {
    "DECLINE": _decline,
    "SUPPRESS": lambda of, _: [pb.Call(suppress=pb.Suppress(roles=texts(of, "roles")))],
    "REVIVE": lambda of, _: [pb.Call(revive=pb.Revive(roles=texts(of, "roles")))],
    "KILL": _kill,
    "ACKNOWLEDGE": _acknowledge,
    "RECONCILE": _reconcile,
    "TEARDOWN": lambda *_: [pb.Call(teardown=pb.Teardown())],
    "SHUTDOWN": lambda *call: [pb.Call(kill=pb.Kill(task_id=each)) for each in _executor(*call)],
    "MESSAGE": _message,
    # Mesos, too, ignores these.
    "REQUEST": lambda *_: [],
    "ACCEPT_INVERSE_OFFERS": lambda *_: [],
    "DECLINE_INVERSE_OFFERS": lambda *_: [],
    "ACKNOWLEDGE_OPERATION_STATUS": lambda *_: [],
    "RECONCILE_OPERATIONS": lambda *_: [],
}
_KINDS: Final = frozenset({"SUBSCRIBE", "ACCEPT", *_TRANSLATORS})
# Clients leave out the fields of these, or put their contents elsewhere.
_WITHOUT_FIELD: Final = frozenset({"TEARDOWN", "SUPPRESS", "REVIVE", "REQUEST", "RECONCILE"})


def _parts(ids: list[str], most: int) -> list[list[str]]:
    """Return the parts of a list, each of at most `most`; at least one."""
    return [ids[start : start + most] for start in range(0, len(ids) or 1, most)]


def _read_filters(filters: pb.Filters, of: Json) -> None:
    """Read the filter of refused resources; without one, or below 0, it is the default."""
    refuse_s = number(entry(of, "filters"), "refuse_seconds", -1.0)
    if refuse_s >= 0:
        filters.refuse_ms = _wait_ms(refuse_s)


def _wait_ms(seconds: float) -> int:
    """Return a duration in milliseconds, at most a year."""
    return math.ceil(min(max(seconds, 0.0), MAX_WAIT_S) * 1000)
