"""The part of the judge that observes the masters: terms, commits, messages and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from croupier.master.core import calls
from croupier.master.core.effects import Effect, SessionId
from croupier.master.core.events import Subscribe
from croupier.master.core.frameworks import Framework
from croupier.master.core.messages import Offered, Registered, Subscribed, ToAgent, ToFramework
from croupier.master.core.records import (
    AgentRecord,
    ForgetHold,
    ForgetTask,
    FrameworkRecord,
    HoldRecord,
    Record,
    TaskRecord,
    task_key,
)
from croupier.master.core.registry import Registry
from croupier.master.core.step import Event
from croupier.master.core.usage_buckets import CLUSTER
from croupier.master.core.usage_records import UsageRecord
from croupier.model.agent_orders import AcknowledgeUpdate, LaunchGroup, LaunchTask
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import total_of
from croupier.model.roles import ancestors, is_within
from croupier.model.store_position import StorePosition
from croupier.model.verdict import Verdict
from tests.chaos.virtual.clock import TracedClock
from tests.chaos.virtual.message_judge import MessageJudge
from tests.chaos.virtual.network import End
from tests.chaos.virtual.task_history import TaskHistory, must
from tests.chaos.virtual.term import Term
from tests.chaos.virtual.volume_judge import VolumeJudge

# An action for the next event of a kind; it takes the process and the stream.
Moment = Callable[[str, End | None], None]


class MasterJudge:
    """The observer of the masters of a world, with the history that all checks need."""

    def __init__(self, clock: TracedClock) -> None:
        self.clock = clock
        self.histories: dict[TaskId, TaskHistory] = {}
        self.seen: Counter[str] = Counter()
        self.messages = MessageJudge(self.seen)
        self.obeyed: dict[str, int] = {}
        self.gone: set[str] = set()
        self.gone_ids: set[AgentId] = set()
        self.agents: dict[AgentId, list[AgentRecord]] = {}
        self.damaged: set[str] = set()
        self.answered: set[TaskId] = set()
        self.runs: dict[str, list[str]] = {}
        self.moments: dict[str, list[Moment]] = {}
        self.registry: Callable[[], Registry] = Registry
        self.leads: Callable[[Term], bool] = lambda _: False
        self.is_store_old = False
        self.volumes = VolumeJudge(self.seen)
        self.refused: Callable[[], None] = lambda: None
        self._counted_ms: dict[tuple[int, int], int] = {}
        self._calls: dict[tuple[str, int], calls.Call] = {}
        self._verdicts: dict[tuple[str, int], Verdict] = {}

    def await_moment(self, kind: str, action: Moment) -> None:
        """Run an action once, at the next event of that kind."""
        self.moments.setdefault(kind, []).append(action)

    def comes(self, kind: str, who: str, end: End | None = None) -> None:
        """Run the actions that wait for an event of this kind."""
        for action in self.moments.pop(kind, ()):
            self.clock.after(0.0, lambda action=action: action(who, end))  # type: ignore[misc]

    def excuse(self, framework_id: FrameworkId) -> None:
        """Excuse the tasks of a removed framework: they are killed without updates to it."""
        for history in self.histories.values():
            if history.framework_id == framework_id:
                history.excused = True
                history.killers.add("removal")

    def on_term(self, master: str, epoch: int) -> None:
        self.seen["terms"] += 1

    def on_store_replaced(self) -> None:
        """Note that an operator has restored an older copy of the store.

        From now on, guarantees of the store are not checked. Still, no task runs twice, and every
        task ends. Tasks that neither the copy nor an agent knows are lost, and their frameworks
        receive that status.
        """
        self.is_store_old = True
        known = {record.task_id for record in self.registry().tasks.values()}
        for task_id, history in self.histories.items():
            if history.run is None and task_id not in known:
                history.excused = True

    def on_refused(self, position: StorePosition) -> None:
        """Check that a master refuses its store only if that is an old copy."""
        self.seen["refusals"] += 1
        must(self.is_store_old, f"the newest store does not know {position}")
        self.refused()

    def on_commit(self, record: Record) -> None:
        if self.moments:
            self.comes("commit", "")
        match record:
            case TaskRecord():
                task_id, done = record.info.task_id, record.is_acknowledged
            case ForgetTask():
                task_id, done = record.task_id, True
            case FrameworkRecord():
                if record.removed:
                    self.excuse(record.framework_id)
                return
            case HoldRecord() | ForgetHold():
                self.volumes.on_commit(record, self.is_store_old)
                return
            case UsageRecord() | AgentRecord():
                self._on_no_task(record)
                return
            case _:
                return
        must(task_id in self.histories, f"{task_id} is recorded, and no framework launched it")
        history = self.histories[task_id]
        if isinstance(record, TaskRecord) and record.requeue is not None:
            again = record.requeue
            if again.count > history.requeues:
                self.seen["requeued"] += 1
                self._check_again(record, history)
                history.on_requeued(again.count, again.sequence)
        if isinstance(record, TaskRecord) and record.queued is None:
            # A task that is withdrawn while it is queued has no agent: it is never charged.
            if record.agent_id and not (history.placed or self.is_store_old):
                self._check_limits(record)
                self.volumes.on_placed(record)
            history.placed = True
        elif isinstance(record, TaskRecord) and record.agent_id:
            self.seen["lined up"] += not history.lined_up
            history.lined_up = True
        history.recorded = True
        history.end_acknowledged = history.end_acknowledged or (done and history.is_known)

    def _check_again(self, record: TaskRecord, history: TaskHistory) -> None:
        """Check that a gang starts again as a whole; a run may go on at an agent that is lost."""
        assert record.requeue is not None
        count = record.requeue.count
        self.seen["starts again in gangs"] += bool(history.gang)
        for other in history.gang:
            is_near = self.histories[other].requeues in (count - 1, count)
            must(is_near or self.is_store_old, f"{record.task_id} starts again without {other}")
        lost = set(map(host_of, record.requeue.avoids))
        history.left_at |= lost
        host = "" if history.machine is None else history.machine.name
        if history.gang and host in lost | self.gone:
            history.run = None

    def _on_no_task(self, record: UsageRecord | AgentRecord) -> None:
        if isinstance(record, UsageRecord):
            self._check_counted(record)
        else:
            self.agents.setdefault(record.agent_id, []).append(record)

    def _check_counted(self, record: UsageRecord) -> None:
        """Check that masters have counted no time twice, and no more than the cluster had."""
        if record.account != CLUSTER:
            return
        self.seen["accounting steps"] += 1
        self._counted_ms[record.start_ms, record.length_ms] = record.counted_ms
        counted_ms, passed_ms = sum(self._counted_ms.values()), self.clock.now() * 1000
        must(counted_ms <= passed_ms + 1, f"{counted_ms} ms are counted in {passed_ms:.0f} ms")

    def _check_limits(self, new: TaskRecord) -> None:
        """Check that live tasks, with the new one, are within all limits above its role.

        A task in a hold changes nothing for the role of the hold and those above it: they are
        charged for the hold already, which comes back with its agent also above a limit.
        """
        registry = self.registry()
        hold = registry.holds.get(new.hold_id)
        in_hold = hold if new.info.resources <= new.held else None
        for role in (new.role, *ancestors(new.role)):
            limit = registry.roles[role].settings.limit if role in registry.roles else {}
            is_charged = in_hold is not None and is_within(in_hold.role, role)
            if is_charged or not limit:
                continue
            live = [each for each in registry.tasks.values() if is_within(each.role, role)]
            held = total_of(each.info.resources for each in live if self._is_live(each))
            for name, most in limit.items():
                must(
                    held[name] <= most,
                    f"{new.task_id} is accepted: {role} has {held}, above its limit {name} {most}",
                )

    def _is_live(self, record: TaskRecord) -> bool:
        """Return whether the task of a record must count for its role.

        Tasks of an unreachable or gone agent do not count, nor tasks that a damaged agent has lost.
        """
        history = self.histories[record.task_id]
        is_reported = record.is_acknowledged or record.master_status is not None or history.is_over
        has_ended = history.run is not None and not history.run.lives
        is_lost = host_of(record.agent_id) in self.damaged
        return not (record.queued is not None or is_reported or has_ended or is_lost)

    def on_decided(self, term: Term, event: Event, effects: Sequence[Effect]) -> None:
        """Remember the framework of each session, and check what became of messages."""
        self.messages.on_decided(event, effects, term.state.peers)
        if isinstance(event, Subscribe):
            peer = term.state.peers.get(event.session)
            if isinstance(peer, Framework):
                term.who[event.session] = (peer.framework_id, peer.client_id)

    def on_sent(self, term: Term, session: SessionId, message: ToFramework | ToAgent) -> None:
        """Check that all decisions in a master's message are durable."""
        if self.moments:
            self.comes(type(message).__name__, term.master, term.sessions[session])
        match message:
            case Verdict():
                self._on_verdict(term, session, message)
            case LaunchTask():
                self._on_launching(message)
            case LaunchGroup(orders):
                whole = self.histories[orders[0].task.task_id].group
                ordered = tuple(order.task.task_id for order in orders)
                must(sorted(ordered) == sorted(whole), f"of {whole} only {ordered} are launched")
                for order in orders:
                    self._on_launching(order)
            case AcknowledgeUpdate(framework_id, task_id, sequence):
                self._on_acknowledging(term, framework_id, task_id, sequence)
            case Registered(agent_id):
                dead = agent_id in self.gone_ids and self.leads(term) and not self.is_store_old
                must(not dead, f"{agent_id} was declared gone and is registered")
            case Offered(_, agent):
                record = self.registry().agents.get(agent.agent_id)
                withheld = record is not None and (record.deactivated or record.drain is not None)
                taken = withheld and self.leads(term)
                must(not taken, f"{agent.agent_id} is offered, but an operator has withheld it")
            case Subscribed(framework_id):
                known = framework_id in self.registry().frameworks or not self.leads(term)
                must(known, f"{framework_id} is subscribed and not durable")
                self._on_subscribed(term, session)
            case _:
                pass

    def _on_launching(self, order: LaunchTask) -> None:
        task_id, history = order.task.task_id, self.histories.get(order.task.task_id)
        is_alone = order.task.group is not None and history is not None and not history.group
        must(not is_alone, f"{task_id} is launched without its group")
        must(
            history is not None and (history.lined_up if order.lined_up else history.placed),
            f"{task_id} is launched before its record is durable",
        )

    def _on_subscribed(self, term: Term, session: SessionId) -> None:
        framework_id, client_id = term.who[session]
        runs = self.runs.setdefault(framework_id, [])
        if client_id not in runs:
            runs.append(client_id)
        late = client_id != runs[-1] and self.leads(term) and not self.is_store_old
        must(not late, f"{client_id} takes over from {runs[-1]}, which is newer")

    def _on_verdict(self, term: Term, session: SessionId, verdict: Verdict) -> None:
        if not term.sessions[session].peer.is_open:
            # The framework has gone to a successor, and never sees what an old leader sends late.
            return
        _, client_id = term.who[session]
        call = self._calls[client_id, verdict.seq]
        before = self._verdicts.setdefault((client_id, verdict.seq), verdict)
        match call:
            case calls.Accept() | calls.Submit():
                for old, new in zip(before.tasks, verdict.tasks, strict=True):
                    same = (old.error is None) == (new.error is None) or self.is_store_old
                    # A refusal is not durable: if it did not arrive, a successor may accept.
                    same = same or (new.error is None and self._is_open(client_id, verdict.seq))
                    must(same, f"{new.task_id} was answered {old.error} and {new.error}")
                refused = {each.task_id for each in verdict.tasks if each.error is not None}
                for each in verdict.tasks:
                    history = self.histories[TaskId(each.task_id)]
                    number = len(refused.intersection(history.group))
                    must(
                        number in (0, len(history.group)),
                        f"of the group of {each.task_id}, {number} tasks are refused",
                    )
                    if each.error is not None:
                        history.refused = not self.is_store_old
                        never_ran = history.run is None or self.is_store_old
                        must(never_ran, f"{each.task_id} ran and is refused")
                        continue
                    must(history.recorded, f"{each.task_id} is accepted and not durable")
                    history.accepted, history.refused = True, False
            case calls.Kill(task_id):
                history = self.histories[task_id]
                history.kill_promised = history.kill_promised or verdict.error is None
            case calls.SendMessage(_, data) if verdict.error is not None:
                self.messages.on_refused(data)
            case _:
                pass

    def _is_open(self, client_id: str, seq: int) -> bool:
        """Return whether a SUBMIT has no verdict that its framework has received."""
        call = self._calls[client_id, seq]
        if not isinstance(call, calls.Submit):
            return False
        owner = self.histories[call.all_tasks[0].task_id].owner
        return owner.client_id == client_id and any(
            each.seq == seq for each in owner.ledger.open_calls()
        )

    def _on_acknowledging(
        self, term: Term, framework_id: FrameworkId, task_id: TaskId, sequence: int
    ) -> None:
        history = self.histories.get(task_id)
        if history is None or history.run is None or not self.leads(term) or self.is_store_old:
            return
        if history.machine is not None and history.machine.name in self.damaged:
            return
        ended = any(status.sequence <= sequence for _, status in history.ends)
        record = self.registry().tasks.get(task_key(framework_id, task_id))
        # If the master has a durable terminal status of its own, the agent may forget the task.
        kept = record is not None and not record.is_acknowledged and record.master_status is None
        must(not (ended and kept), f"{task_id} is acknowledged and not yet forgotten")


def host_of(agent_id: AgentId) -> str:
    """Return the machine of an agent, from the id that it chose."""
    return agent_id[1:].partition(".")[0]
