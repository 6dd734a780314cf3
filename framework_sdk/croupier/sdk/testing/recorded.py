"""Calls of a framework, as values that a test can compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest
from croupier.model.secrets import SecretValues
from croupier.model.task import TaskInfo
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import task_pb2
from croupier.wire.resources import constraint_from_wire
from croupier.wire.task import demands_from_wire, task_from_wire


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call. Fields that its kind does not have are at their defaults.

    Attributes:
        kind: `subscribe`, `accept`, `submit`, `withdraw`, `decline`, `update_demand`, `suppress`,
            `revive`, `kill`, `acknowledge`, `reconcile`, `teardown` or `heartbeat`.
        seq: its number; 0 for `subscribe` and `heartbeat`.
        again: whether it was decided before, so that only its verdict is repeated.
        verdicts_seen: of the message that carried it.
        framework_id: of the session.
        offer_ids: of `accept` and `decline`.
        tasks: of `accept` and `submit`, in order; `secrets` has the values of their secrets, by
            task id.
        refuse_s: of `accept` and `decline`; None if absent.
        roles: of `subscribe`, `submit`, `suppress` and `revive`.
        suppressed: whether `subscribe` suppresses all roles.
        suppressed_roles: roles that `subscribe` suppresses one by one.
        demands: of `subscribe` and `update_demand`; empty if malformed.
        task_ids: of `withdraw`, `kill` and `reconcile`.
        constraints, max_per_agent: of `submit`.
        grace_s: of `kill`; None if absent.
        updates: of `acknowledge`, as pairs of task id and sequence.
    """

    kind: str
    seq: int = 0
    again: bool = False
    verdicts_seen: int = 0
    framework_id: str = ""
    client_id: str = ""
    name: str = ""
    roles: tuple[str, ...] = ()
    failover_timeout_s: float = 0.0
    offer_lease_s: float = 0.0
    suppressed: bool = False
    suppressed_roles: tuple[str, ...] = ()
    offer_ids: tuple[str, ...] = ()
    tasks: tuple[TaskInfo, ...] = ()
    secrets: Mapping[str, SecretValues] = field(default_factory=dict)
    refuse_s: float | None = None
    reason: str = ""
    demands: tuple[Demand, ...] = ()
    task_ids: tuple[str, ...] = ()
    grace_s: float | None = None
    updates: tuple[tuple[str, int], ...] = ()
    constraints: tuple[Constraint, ...] = ()
    max_per_agent: int | None = None

    @property
    def role(self) -> str:
        """The first of `roles`; empty if there is none."""
        return next(iter(self.roles), "")

    @property
    def demand(self) -> Demand | None:
        """The first of `demands`; None if there is none."""
        return next(iter(self.demands), None)


def record(call: pb.Call, framework_id: str, verdicts_seen: int, again: bool) -> RecordedCall:
    """Return `call` as a value."""
    policy = call.kill.kill_policy
    return RecordedCall(
        kind=call.WhichOneof("call") or "",
        seq=call.seq,
        again=again,
        verdicts_seen=verdicts_seen,
        framework_id=framework_id,
        client_id=call.subscribe.client_id,
        name=call.subscribe.framework.name,
        roles=_roles(call),
        failover_timeout_s=call.subscribe.framework.failover_timeout_ms / 1000,
        offer_lease_s=call.subscribe.offer_lease_ms / 1000,
        suppressed=call.subscribe.suppressed,
        suppressed_roles=tuple(call.subscribe.suppressed_roles),
        offer_ids=(*call.accept.offer_ids, *call.decline.offer_ids),
        tasks=tuple(map(task_from_wire, _tasks(call))),
        secrets={task.task_id: SecretValues(task.command.secrets) for task in _tasks(call)},
        refuse_s=_refuse_s(call.decline if call.HasField("decline") else call.accept),
        reason=call.decline.reason,
        demands=_demands(call),
        task_ids=_task_ids(call),
        constraints=tuple(map(constraint_from_wire, call.submit.constraints)),
        max_per_agent=call.submit.max_per_agent if call.submit.HasField("max_per_agent") else None,
        grace_s=policy.grace_ms / 1000 if call.kill.HasField("kill_policy") else None,
        updates=tuple((u.task_id, u.sequence) for u in call.acknowledge.updates),
    )


def _tasks(call: pb.Call) -> list[task_pb2.TaskInfo]:
    accepted = [task for each in call.accept.operations for task in each.launch.tasks]
    return [*accepted, *call.submit.tasks]


def _task_ids(call: pb.Call) -> tuple[str, ...]:
    several = (*call.reconcile.task_ids, *call.withdraw.task_ids)
    return (*several, call.kill.task_id) if call.kill.task_id else several


def _roles(call: pb.Call) -> tuple[str, ...]:
    several = (*call.subscribe.framework.roles, *call.suppress.roles, *call.revive.roles)
    return (*several, call.submit.role) if call.submit.role else several


def _refuse_s(call: pb.Accept | pb.Decline) -> float | None:
    return call.filters.refuse_ms / 1000 if call.filters.HasField("refuse_ms") else None


def _demands(call: pb.Call) -> tuple[Demand, ...]:
    try:
        return demands_from_wire([*call.subscribe.demands, *call.update_demand.demands])
    except InvalidRequest:
        return ()
