"""Messages of the core to a framework, as events of Mesos."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Final

from croupier.master.core import messages
from croupier.master.core.agents import Agent
from croupier.master.mesos.amounts import attributes_to_json, resources_to_json
from croupier.master.mesos.tasks import executor_id_in
from croupier.master.mesos.volumes import volume_to_json, volumes_on
from croupier.mesos import fields
from croupier.mesos.fields import Json
from croupier.model.attributes import Attributes
from croupier.model.errors import Conflict, CroupierError, NotFound, PermissionDenied, Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.task import Reason, Source, TaskState, TaskStatus
from croupier.net.address import Address

HEARTBEAT: Final = fields.typed("HEARTBEAT")

PARTITION_AWARE: Final = "PARTITION_AWARE"
KILLING_STATE: Final = "TASK_KILLING_STATE"
MULTI_ROLE: Final = "MULTI_ROLE"
REFINEMENT: Final = "RESERVATION_REFINEMENT"

_UUID: Final = struct.Struct(">QQ")
_NEW_STATES: Final = frozenset({"DROPPED", "UNREACHABLE", "GONE", "GONE_BY_OPERATOR", "UNKNOWN"})
# Reasons without an entry have their own name, and those with an empty one are not sent: Mesos has
# no reason for them.
_REASONS: Final = {
    Reason.NONE: "",
    Reason.AGENT_STOPPED: "AGENT_REMOVED",
    Reason.KILLED_BY_FRAMEWORK: "",
    Reason.KILLED_BY_OPERATOR: "",
    Reason.PREEMPTED: "CONTAINER_PREEMPTED",
    Reason.AGENT_REBOOTED: "AGENT_RESTARTED",
    Reason.GONE_BY_OPERATOR: "AGENT_REMOVED_BY_OPERATOR",
    Reason.MEMORY_LIMIT: "CONTAINER_LIMITATION_MEMORY",
    Reason.DISK_LIMIT: "CONTAINER_LIMITATION_DISK",
    Reason.GROUP_ENDED: "",
    Reason.GANG_ENDED: "",
    Reason.TIMED_OUT: "MAX_COMPLETION_TIME_REACHED",
}
# The reasons of tasks that are dropped with their call, for example because an offer has ended.
# Else, and for a single task, the framework is at fault.
_CALL_ERRORS: Final[tuple[tuple[type[CroupierError], str], ...]] = (
    (Conflict, "INVALID_OFFERS"),
    (NotFound, "INVALID_OFFERS"),
    (Unavailable, "AGENT_DISCONNECTED"),
)


class Events:
    """Makes the events of one framework."""

    def __init__(self, info: Json, master: Json, agents: Mapping[AgentId, Agent]) -> None:
        """`info` is the framework's FrameworkInfo; `master` describes the master of `agents`."""
        self._capabilities = {
            fields.text(each, "type") for each in fields.entries(info, "capabilities")
        }
        self._master, self.agents = master, agents
        # What offers of each agent have in common, with the description that it is made of.
        self._agents: dict[AgentId, tuple[messages.AgentDescription, Json]] = {}

    def of(self, message: messages.ToFramework) -> Iterator[Json]:
        """Yield the events for a message; none for verdicts, and what Mesos does not have."""
        match message:
            case messages.Offered():
                yield fields.typed("OFFERS", offers=[self._offer(message)])
            case messages.Rescinded(offer_id, _):
                yield fields.typed("RESCIND", offer_id=fields.made_id(offer_id))
            case messages.MessageArrived(task_id, agent_id, data):
                yield fields.typed(
                    "MESSAGE", **_executor(task_id, agent_id), data=fields.made_data(data)
                )
            case messages.AgentFailed(agent_id, _, _):
                self._agents.pop(agent_id, None)
                yield fields.typed("FAILURE", agent_id=fields.made_id(agent_id))
            case messages.Subscribed(framework_id, heartbeat_s, _):
                yield fields.typed(
                    "SUBSCRIBED",
                    framework_id=fields.made_id(framework_id),
                    heartbeat_interval_seconds=heartbeat_s,
                    master_info=self._master,
                )
                yield HEARTBEAT

    def update(self, status: TaskStatus, executor_id: str = "") -> Iterator[Json]:
        """Yield the event for a status of a task in an executor.

        Mesos gives no answer while the master waits for the task's agent.
        """
        if status.state is TaskState.UNKNOWN and status.agent_id:
            return
        found = self.status(status)
        if executor_id:
            found["executor_id"] = fields.made_id(executor_id)
        yield fields.typed("UPDATE", status=found)

    def status(self, status: TaskStatus) -> Json:
        """Return a status; one that must be acknowledged has an uuid."""
        found: Json = {
            "task_id": fields.made_id(status.task_id),
            "state": self._state_name(status.state),
            "source": f"SOURCE_{(status.source or Source.MASTER).name}",
        }
        if status.agent_id:
            found["agent_id"] = fields.made_id(status.agent_id)
        reason = Reason.RECONCILIATION if status.is_reconciled else status.reason
        if name := _REASONS.get(reason, reason.name):
            found["reason"] = f"REASON_{name}"
        if status.message:
            found["message"] = status.message
        if status.time_ms:
            found["timestamp"] = status.time_ms / 1000
        if status.sequence:
            found["uuid"] = _uuid(status)
        if status.data:
            found["data"] = fields.made_data(status.data)
        _, common = self._agents.get(status.agent_id, (None, {}))
        ip = fields.entry(common, "url", "address").get("ip")
        if ip and not status.state.is_terminal:
            # Tasks use the network of their agent.
            found["container_status"] = {"network_infos": [{"ip_addresses": [{"ip_address": ip}]}]}
        if status.labels:
            found["labels"] = fields.made_labels(status.labels)
        return found

    def refused(
        self,
        task_id: str,
        agent_id: str,
        error: CroupierError,
        *,
        is_grouped: bool = False,
        is_whole: bool = False,
    ) -> Json:
        """Return the event for a task that was not launched; it needs no acknowledgement.

        `is_grouped`: it is of a group; `is_whole`: it was refused with its whole call.
        """
        state = TaskState.ERROR
        reason = "TASK_GROUP_" if is_grouped else "TASK_"
        reason += "UNAUTHORIZED" if isinstance(error, PermissionDenied) else "INVALID"
        for kind, dropped in _CALL_ERRORS if is_whole else ():
            if isinstance(error, kind):
                state, reason = TaskState.DROPPED, dropped
        ids = FrameworkId(""), TaskId(task_id), AgentId(agent_id)
        now_ms = time.time_ns() // 1_000_000
        status = self.status(TaskStatus(*ids, state, message=str(error), time_ms=now_ms))
        return fields.typed("UPDATE", status=status | {"reason": f"REASON_{reason}"})

    def _state_name(self, state: TaskState) -> str:
        """Return the name of a state that the framework knows."""
        if state.name in _NEW_STATES and PARTITION_AWARE not in self._capabilities:
            state = TaskState.LOST
        elif state is TaskState.KILLING and KILLING_STATE not in self._capabilities:
            state = TaskState.RUNNING
        elif state is TaskState.QUEUED:
            state = TaskState.STAGING
        return f"TASK_{state.name}"

    def _offer(self, offered: messages.Offered) -> Json:
        agent = offered.agent
        known = self._agents.get(agent.agent_id)
        if known is None or known[0] is not agent:
            common = agent_fields(
                agent.agent_id, agent.hostname, agent.attributes, agent.http_address
            )
            known = self._agents[agent.agent_id] = (agent, common)
        more: Json = {"role": "*"}
        if offered.hold_id:
            more = self._reservation(offered.role)
        of_role: Json = {}
        if MULTI_ROLE in self._capabilities:
            of_role = {"allocation_info": {"role": offered.role}}
        resources = resources_to_json(offered.resources, more | of_role)
        volumes = volumes_on(self.agents.get(agent.agent_id), offered.role)
        for hold in volumes.values():
            resources += volume_to_json(hold, self._reservation(hold.role) | of_role)
        return {
            "id": fields.made_id(offered.offer_id),
            **known[1],
            "resources": resources,
            **of_role,
        }

    def _reservation(self, role: Role) -> Json:
        """Return what names the role of a reserved resource, in the form that is known."""
        if REFINEMENT in self._capabilities:
            return {"reservations": [{"type": "DYNAMIC", "role": role}]}
        return {"role": role, "reservation": {}}


def executor_end(status: TaskStatus) -> Json:
    """Return the event for the end of an executor, with its raw wait status; -1: unknown."""
    raw = -1
    if status.exit_code is not None:
        raw = status.exit_code << 8
    elif status.signal is not None:
        raw = status.signal
    return fields.typed("FAILURE", **_executor(status.task_id, status.agent_id), status=raw)


def operation_update(operation_id: str, state: str, message: str) -> Iterator[Json]:
    """Yield the event for an operation; none if the framework gave it no id."""
    if operation_id:
        status = {"operation_id": fields.made_id(operation_id), "state": f"OPERATION_{state}"}
        if message:
            status["message"] = message
        yield fields.typed("UPDATE_OPERATION_STATUS", status=status)


def agent_fields(agent_id: str, hostname: str, attributes: Attributes, http_address: str) -> Json:
    """Return what every offer of an agent says of it."""
    found: Json = {"agent_id": fields.made_id(agent_id), "hostname": hostname}
    if attributes:
        found["attributes"] = attributes_to_json(attributes)
    scheme, _, place = http_address.rpartition("://")
    if place:
        at = Address.parse(place)
        found["url"] = {
            "scheme": scheme or "http",
            "address": {"hostname": hostname, "ip": at.host, "port": at.port},
            "path": "/slave(1)",
        }
    return found


def _executor(task_id: str, agent_id: str) -> Json:
    return {
        "agent_id": fields.made_id(agent_id),
        "executor_id": fields.made_id(executor_id_in(task_id, agent_id)),
    }


def _uuid(status: TaskStatus) -> str:
    """Return the uuid of an update, which holds its sequence number."""
    named = f"{status.framework_id}\0{status.task_id}\0{status.agent_id}".encode()
    digest = int.from_bytes(blake2b(named, digest_size=8).digest())
    return fields.made_data(_UUID.pack(digest, status.sequence))


def sequence_in(of: Json) -> int:
    """Return the sequence number in the uuid of an acknowledgement; raises InvalidRequest."""
    _, sequence = _UUID.unpack(fields.uuid_of(of))
    return int(sequence)
