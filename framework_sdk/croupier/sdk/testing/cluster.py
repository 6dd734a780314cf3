"""What a fake master deals: offers and tasks, and its decisions on calls.

Rule: it decides as the real one does. One bad offer spoils an accept; a task's id is never
used twice; updates are numbered from 1 and kept until acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from croupier.model.demand import Demand, check_demands
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId, check_roles
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import MASTER_SEQUENCE, Reason, Source, TaskInfo, TaskState, TaskStatus
from croupier.net.errors import error_to_wire
from croupier.sdk.core.subscription import Launch, counted_down
from croupier.sdk.testing.recorded import tasks_of
from croupier.v1 import framework_pb2 as pb
from croupier.wire.task import demands_from_wire


@dataclass(frozen=True, slots=True)
class FakeOffer:
    """An offer that stands.

    Attributes:
        expires_at: in seconds on the master's clock.
        facts: attributes of the agent as text, with its hostname.
    """

    offer_id: str
    agent_id: str
    role: Role
    resources: Resources
    expires_at: float
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class FakeTask:
    """A task that was launched, and its updates that were not acknowledged, oldest first.

    `launched_by` is the run of the framework's program, and the number of its ACCEPT.
    """

    info: TaskInfo
    agent_id: str
    role: Role
    launched_by: tuple[str, int]
    state: TaskState = TaskState.STAGING
    latest: TaskStatus | None = None
    sequence: int = 0
    acknowledged: int = 0
    waiting: list[TaskStatus] = field(default_factory=list)


@dataclass(slots=True)
class Cluster:
    """The state of one framework at a fake master; `made` are the ids of all offers ever."""

    framework_id: str = ""
    client_id: str = ""
    offers: dict[str, FakeOffer] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    tasks: dict[str, FakeTask] = field(default_factory=dict)
    roles: tuple[Role, ...] = ()
    demands: tuple[Demand, ...] = ()
    suppressed: set[Role] = field(default_factory=set)

    def subscribe(self, subscribe: pb.Subscribe) -> None:
        """Take in what SUBSCRIBE says of roles, demands and suppression.

        Raises:
            InvalidRequest: if it cannot be; nothing is changed then.
        """
        roles = check_roles(subscribe.framework.roles)
        demands = check_demands(demands_from_wire(subscribe.demands), roles)
        named = _own(roles, subscribe.suppressed_roles)
        self.roles, self.demands = roles, demands
        self.suppressed = set(roles if subscribe.suppressed else named)

    def add(self, offer: FakeOffer) -> None:
        """Let a new offer stand."""
        self.offers[offer.offer_id] = offer
        self.made.add(offer.offer_id)

    def decide(self, call: pb.Call, refusal: CroupierError | None) -> pb.Verdict:
        """Do what `call` asks, or refuse it by `refusal`; the verdict."""
        if call.HasField("accept"):
            return self._on_accept(call.seq, call.accept, refusal)
        try:
            if refusal is not None:
                raise refusal
            self._do(call)
        except CroupierError as error:
            return pb.Verdict(seq=call.seq, error=error_to_wire(error))
        return pb.Verdict(seq=call.seq)

    def update(self, wanted: TaskStatus) -> TaskStatus:
        """Move a task as `wanted` says; returns the update with what the agent fills in.

        An update by the executor or agent gets the task's next number; one by the master
        none, or `MASTER_SEQUENCE` if it is an end.

        Raises:
            NotFound: if no such task was launched.
        """
        task = self.tasks.get(wanted.task_id)
        if task is None:
            raise NotFound(f"no task {wanted.task_id} was launched")
        task.state = wanted.state
        status = replace(
            wanted, framework_id=FrameworkId(self.framework_id), agent_id=AgentId(task.agent_id)
        )
        if status.source is not Source.MASTER:
            task.sequence += 1
            status = replace(status, sequence=task.sequence)
        elif status.state.is_terminal:
            task.sequence = MASTER_SEQUENCE
            status = replace(status, sequence=MASTER_SEQUENCE)
        task.latest = status
        if status.needs_acknowledgement:
            task.waiting.append(status)
        return status

    def waiting(self) -> list[TaskStatus]:
        """All updates that were not acknowledged; of each task in order."""
        return [status for task in self.tasks.values() for status in task.waiting]

    def reconcile(self, task_ids: Iterable[str]) -> list[TaskStatus]:
        """The answer to RECONCILE, which is never silence."""
        return [self._known(task_id) for task_id in task_ids or list(self.tasks)]

    def _known(self, task_id: str) -> TaskStatus:
        task = self.tasks.get(task_id)
        if task is not None and task.latest is not None:
            return replace(task.latest, is_reconciled=True)
        return TaskStatus(
            framework_id=FrameworkId(self.framework_id),
            task_id=TaskId(task_id),
            agent_id=AgentId(task.agent_id if task else ""),
            state=task.state if task else TaskState.UNKNOWN,
            reason=Reason.NONE if task else Reason.RECONCILIATION,
            is_reconciled=True,
        )

    def _do(self, call: pb.Call) -> None:
        match call.WhichOneof("call"):
            case "decline":
                self._on_decline(call.decline)
            case "update_demand":
                wanted = demands_from_wire(call.update_demand.demands)
                self.demands = check_demands(wanted, self.roles)
            case "suppress":
                self.suppressed |= set(_own(self.roles, call.suppress.roles) or self.roles)
            case "revive":
                self.suppressed -= set(_own(self.roles, call.revive.roles) or self.roles)
            case "kill":
                if call.kill.task_id not in self.tasks:
                    raise NotFound(f"no task {call.kill.task_id}")
            case "acknowledge":
                for update in call.acknowledge.updates:
                    self._on_acknowledge(update)
            case "reconcile" | "teardown":
                pass
            case kind:
                raise InvalidRequest(f"unknown call {kind}")

    def _on_decline(self, decline: pb.Decline) -> None:
        _, error = self._take(decline.offer_ids)
        # Offers that have ended meanwhile are no error: there is nothing left to decline.
        if error is not None and not isinstance(error, Conflict):
            raise error

    def _on_acknowledge(self, update: pb.Acknowledge.Update) -> None:
        task = self.tasks.get(update.task_id)
        if task is not None:
            task.acknowledged = max(task.acknowledged, min(update.sequence, task.sequence))
            task.waiting = [s for s in task.waiting if s.sequence > task.acknowledged]

    def _on_accept(self, seq: int, accept: pb.Accept, error: CroupierError | None) -> pb.Verdict:
        by = (self.client_id, seq)
        known = {task_id for task_id, task in self.tasks.items() if task.launched_by == by}
        if known:
            return _again(seq, accept, known)
        standing, stale = self._take(accept.offer_ids)
        error = error or stale
        if error is None and len({offer.agent_id for offer in standing}) > 1:
            error = InvalidRequest("the offers are of several agents")
        if error is None and len({offer.role for offer in standing}) > 1:
            error = InvalidRequest("the offers are in several roles")
        verdict = pb.Verdict(seq=seq, error=error_to_wire(error) if error else None)
        room = NOTHING
        for offer in standing:
            room += offer.resources
        for info in tasks_of(accept):
            task_error = error or self._refusal(info, room)
            if task_error is None:
                room -= info.resources
                first = standing[0]
                self.tasks[info.task_id] = FakeTask(info, first.agent_id, first.role, by)
                launch = Launch(first.role, (info.resources,), first.facts)
                self.demands = counted_down(self.demands, self.roles[0], launch)
            verdict.tasks.add(
                task_id=info.task_id, error=error_to_wire(task_error) if task_error else None
            )
        return verdict

    def _take(self, ids: Sequence[str]) -> tuple[list[FakeOffer], CroupierError | None]:
        """Take these offers out of the books; those that stood, and why not all did."""
        standing = [self.offers.pop(i) for i in dict.fromkeys(ids) if i in self.offers]
        made_up = [i for i in ids if i not in self.made]
        if not ids or made_up:
            return standing, NotFound(f"no offer {', '.join(made_up)}")
        if len(standing) < len(ids):
            return standing, Conflict("an offer is no more, or is named twice")
        return standing, None

    def _refusal(self, info: TaskInfo, room: Resources) -> CroupierError | None:
        try:
            info.check()
        except InvalidRequest as error:
            return error
        if info.task_id in self.tasks:
            return InvalidRequest(f"task id {info.task_id} was used before")
        if not info.resources <= room:
            return InvalidRequest(f"task {info.task_id} does not fit in what is left: {room}")
        return None


def _again(seq: int, accept: pb.Accept, launched: set[str]) -> pb.Verdict:
    """The verdict on an ACCEPT that an earlier master took, from what it has launched."""
    verdict = pb.Verdict(seq=seq)
    error = error_to_wire(Conflict("an earlier master refused it"))
    for info in tasks_of(accept):
        verdict.tasks.add(task_id=info.task_id, error=None if info.task_id in launched else error)
    return verdict


def _own(roles: tuple[Role, ...], named: Iterable[str]) -> list[Role]:
    """`named`, if they are all among `roles`."""
    chosen = [Role(role) for role in named]
    for role in chosen:
        if role not in roles:
            raise InvalidRequest(f"role {role!r} is not one of the framework's")
    return chosen
