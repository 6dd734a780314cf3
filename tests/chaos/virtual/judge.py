"""The judge observes a whole world, and raises when an invariant is violated.

It knows all calls and verdicts, all processes and their exits, the durable records at the time of
each message, and the updates that each framework's handler received.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from croupier.agent.core import effects as fx
from croupier.agent.core.events import Event as AgentEvent
from croupier.agent.core.events import GroupLaunch, LaunchIntoSandbox
from croupier.agent.core.records import GroupRecord, KillRecord
from croupier.agent.core.records import TaskRecord as AgentTaskRecord
from croupier.master.core import calls
from croupier.master.core.agent_commands import AgentAction, Deactivate, Drain, MarkGone, Reactivate
from croupier.master.core.agent_status import AgentStatus
from croupier.master.core.effects import Effect, SessionId
from croupier.master.core.events import Subscribe
from croupier.master.core.frameworks import Framework
from croupier.master.core.messages import Offered, Registered, Subscribed, ToAgent, ToFramework
from croupier.master.core.records import (
    AgentRecord,
    ForgetTask,
    FrameworkRecord,
    Record,
    Registry,
    TaskRecord,
    task_key,
)
from croupier.master.core.step import Event
from croupier.model.agent_orders import AcknowledgeUpdate, LaunchGroup, LaunchTask, RecallTask
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import total_of
from croupier.model.roles import ancestors, is_within
from croupier.model.store_position import StorePosition
from croupier.model.task import Reason, TaskState, TaskStatus
from croupier.model.task_group import GroupPart
from croupier.model.verdict import Verdict
from tests.chaos.virtual.agent import AgentProcess
from tests.chaos.virtual.clock import TracedClock
from tests.chaos.virtual.framework import FrameworkProcess
from tests.chaos.virtual.machine import Machine, Run
from tests.chaos.virtual.network import End
from tests.chaos.virtual.task_history import TaskHistory, must
from tests.chaos.virtual.term import Term

# An action for the next event of a kind; it takes the process and the stream.
Moment = Callable[[str, End | None], None]


class Judge:
    """The observer of a world, with the history that its checks need."""

    def __init__(self, clock: TracedClock) -> None:
        self.clock = clock
        self.histories: dict[TaskId, TaskHistory] = {}
        self.seen: Counter[str] = Counter()
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
        self.refused: Callable[[], None] = lambda: None
        self._calls: dict[tuple[str, int], calls.Call] = {}
        self._verdicts: dict[tuple[str, int], Verdict] = {}

    def await_moment(self, kind: str, action: Moment) -> None:
        """Run an action once, at the next event of that kind."""
        self.moments.setdefault(kind, []).append(action)

    def _comes(self, kind: str, who: str, end: End | None = None) -> None:
        for action in self.moments.pop(kind, ()):
            self.clock.after(0.0, lambda action=action: action(who, end))  # type: ignore[misc]

    # Masters.

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
            self._comes("commit", "")
        match record:
            case TaskRecord():
                task_id, done = record.info.task_id, record.is_acknowledged
            case ForgetTask():
                task_id, done = record.task_id, True
            case FrameworkRecord():
                if record.removed:
                    self.excuse(record.framework_id)
                return
            case AgentRecord():
                self.agents.setdefault(record.agent_id, []).append(record)
                return
            case _:
                return
        must(task_id in self.histories, f"{task_id} is recorded, and no framework launched it")
        history = self.histories[task_id]
        if isinstance(record, TaskRecord) and record.queued is None:
            # A task that is withdrawn while it is queued has no agent: it is never charged.
            if record.agent_id and not (history.placed or self.is_store_old):
                self._check_limits(record)
            history.placed = True
        elif isinstance(record, TaskRecord) and record.agent_id:
            self.seen["lined up"] += not history.lined_up
            history.lined_up = True
        history.recorded = True
        history.end_acknowledged = history.end_acknowledged or (done and history.is_known)

    def _check_limits(self, new: TaskRecord) -> None:
        """Check that live tasks, with the new one, are within all limits above its role."""
        registry = self.registry()
        for role in (new.role, *ancestors(new.role)):
            limit = registry.roles[role].settings.limit if role in registry.roles else {}
            if not limit:
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
        is_lost = _host_of(record.agent_id) in self.damaged
        return not (record.queued is not None or is_reported or has_ended or is_lost)

    def on_decided(self, term: Term, event: Event, effects: Sequence[Effect]) -> None:
        """Remember the framework of each session."""
        if isinstance(event, Subscribe):
            peer = term.state.peers.get(event.session)
            if isinstance(peer, Framework):
                term.who[event.session] = (peer.framework_id, peer.client_id)

    def on_sent(self, term: Term, session: SessionId, message: ToFramework | ToAgent) -> None:
        """Check that all decisions in a master's message are durable."""
        if self.moments:
            self._comes(type(message).__name__, term.master, term.sessions[session])
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

    # Agents.

    def on_agent_step(
        self, agent: AgentProcess, epoch: int | None, event: AgentEvent, effects: list[fx.Effect]
    ) -> None:
        old = epoch is not None and epoch < self.obeyed.get(agent.name, 0)
        must(not old, f"{agent.name} obeys epoch {epoch}: {event}")
        for effect in effects:
            if isinstance(effect, fx.SendUpdates):
                for status in effect.statuses:
                    if status.state.is_terminal:
                        self.histories[status.task_id].is_over = True
        if self.moments:
            self._come_groups(agent, effects)
        self._note_line(agent, event, effects)
        if agent.state.groups:
            self._check_groups(agent)
        launches = LaunchTask | LaunchIntoSandbox | GroupLaunch
        if isinstance(event, launches) and not agent.state.health.is_healthy:
            taken = [each for each in effects if isinstance(each, fx.Checkpoint | fx.Spawn)]
            must(not taken, f"{agent.name} is unhealthy and records a launch: {taken}")

    def _come_groups(self, agent: AgentProcess, effects: list[fx.Effect]) -> None:
        for effect in effects:
            match effect:
                case fx.Checkpoint(GroupRecord()):
                    self._comes("group", agent.name)
                case fx.Checkpoint(KillRecord(reason=Reason.GROUP_ENDED)):
                    self._comes("end of a group", agent.name)

    def _check_groups(self, agent: AgentProcess) -> None:
        """Check that all are being ended whom the end of another of their group ends."""
        for keys in agent.state.groups.values():
            tasks = [agent.state.tasks[key] for key in keys]
            live = [task for task in tasks if task.is_live]
            for ended in tasks:
                if ended.is_live:
                    continue
                is_finished = ended.state is TaskState.FINISHED
                is_last = all(task.info.part is GroupPart.SIDECAR for task in live)
                has_failed = ended.info.part is GroupPart.MEMBER and not is_finished
                if ended.info.part is GroupPart.LEADER or has_failed or is_last:
                    left = [task.info.task_id for task in live if task.kill is None]
                    must(not left, f"{left} outlive {ended.info.task_id} of their group")

    def _check_whole(self, machine: Machine, task_id: TaskId) -> None:
        """Check that the others of a group have started too, or are recorded to be started."""
        recorded = {
            record.info.task_id for record in machine.disk if isinstance(record, AgentTaskRecord)
        }
        for other in self.histories[task_id].group:
            history = self.histories[other]
            is_known = history.run is not None or history.is_over or other in recorded
            must(is_known, f"{task_id} starts, and {other} of its group is not recorded")

    def _note_line(self, agent: AgentProcess, event: AgentEvent, effects: list[fx.Effect]) -> None:
        """Note which lined-up tasks must not start any more, before they are ordered again."""
        tasks = agent.state.tasks
        if isinstance(event, LaunchTask):
            self.histories[event.task.task_id].recalled.discard(agent.name)
        elif isinstance(event, RecallTask) and (event.framework_id, event.task_id) not in tasks:
            self.histories[event.task_id].recalled.add(agent.name)
        for effect in effects:
            if isinstance(effect, fx.ReturnTasks):
                self.seen["returned"] += len(effect.keys)
                for _, task_id in effect.keys:
                    self.histories[task_id].recalled.add(agent.name)

    def on_agent_start(self, agent: AgentProcess) -> None:
        """Check that the agent knows each process, or has detected that records are lost."""
        known = agent.known_runs()
        for run in agent.machine.live:
            is_known = run.run in known or agent.state.incomplete
            must(is_known, f"{agent.name} starts, and {run.key} lives without a record")

    def on_agent_refused(self, agent: AgentProcess) -> None:
        """Check that the agent refuses to start only if records are lost."""
        self.seen["refusals"] += 1
        lost = agent.name in self.damaged
        must(lost, f"{agent.name} refuses to start, and none of its records is lost")

    def on_obeyed(self, agent: AgentProcess, epoch: int) -> None:
        if self.moments:
            self._comes("sync", agent.name)
        self.obeyed[agent.name] = max(epoch, self.obeyed.get(agent.name, 0))

    def on_process(self, machine: Machine, run: Run) -> None:
        """Check that the process may be started."""
        if self.moments:
            self._comes("process", machine.name)
        _, task_id = run.key
        history = self.histories[task_id]
        self.seen["processes"] += 1
        # An older copy of the store may hold a task as queued that has run since. A master that no
        # agent has told yet that its copy is old cannot know that.
        # Tasks in executors have no sandbox by which their agent could tell.
        may_repeat = (history.submitted or run.executor is not None) and self.is_store_old
        self.seen["in executors"] += run.executor is not None
        must(history.run is None or may_repeat, f"{task_id} is started twice")
        must(not history.refused, f"{task_id} was refused and is started")
        is_recalled = machine.name in history.recalled
        must(not is_recalled, f"{task_id} was recalled and is started")
        self.seen["started from a line"] += history.lined_up
        # A task on an agent that was declared gone may still run.
        ended = bool(history.ends) and machine.name not in self.gone and not self.is_store_old
        must(not ended, f"{task_id} is started after its terminal update")
        history.run, history.machine = run, machine
        if history.group:
            self.seen["started in groups"] += 1
            if machine.name not in self.damaged:
                self._check_whole(machine, task_id)
        live = (*machine.live, *(each for each in machine.in_executors if each.lives))
        held = total_of(each.resources for each in live)
        must(held <= machine.total, f"{machine.name} has {machine.total}, {held} are used")

    def on_launched_again(self, task_id: TaskId) -> None:
        """Check that only an older copy of the store launches a task in its executor again."""
        must(self.is_store_old, f"{task_id} is launched in its executor twice")

    def on_process_end(self, machine: Machine, run: Run) -> None:
        if self.moments:
            self._comes("end", machine.name)

    # Frameworks.

    def on_called(self, framework: FrameworkProcess, seq: int, call: calls.Call) -> None:
        self._calls[framework.client_id, seq] = call
        self.seen["calls"] += 1
        match call:
            case calls.Accept(_, tasks) | calls.Submit(tasks):
                for task in tasks:
                    history = self.histories[task.task_id] = TaskHistory(
                        framework, framework.framework_id, framework.client_id
                    )
                    history.submitted = isinstance(call, calls.Submit)
                    group_id = task.group_id
                    unit = [each.task_id for each in tasks if each.group_id == group_id]
                    history.group = tuple(unit) if group_id else ()
            case calls.Kill(task_id):
                self.histories[task_id].killers.add("framework")
            case calls.Withdraw(task_ids):
                for task_id in task_ids:
                    self.histories[task_id].killers.add("framework")
            case _:
                pass

    def on_new_identity(self, framework: FrameworkProcess) -> None:
        """Excuse the tasks of the old identity of a framework."""
        self.excuse(framework.framework_id)

    def excuse(self, framework_id: FrameworkId) -> None:
        """Excuse the tasks of a removed framework: they are killed without updates to it."""
        for history in self.histories.values():
            if history.framework_id == framework_id:
                history.excused = True
                history.killers.add("removal")

    def on_handled(self, framework: FrameworkProcess, status: TaskStatus) -> None:
        """Check an update after its handler has returned."""
        history = self.histories[status.task_id]
        self.seen["updates"] += 1
        self.answered.add(status.task_id)
        history.is_known = history.is_known or status.state.is_terminal
        host = history.machine.name if history.machine is not None else _host_of(status.agent_id)
        if host in self.damaged or self.is_store_old:
            # Lost updates cannot be sent, so their order and content are not checked.
            return
        if status.state.is_terminal:
            is_gone = history.machine is None or history.machine.name in self.gone
            history.check_truth(status, is_gone)
        if not status.needs_acknowledgement:
            return
        client = framework.client_id
        if status.is_reconciled:
            history.check_reconciled(client, status)
            return
        # An older run receives updates that were in flight when a newer one took over.
        is_newest = self.runs.get(framework.framework_id, [client])[-1] == client
        history.check_order(client, status, is_newest)

    def on_failed(self, framework: FrameworkProcess, status: TaskStatus) -> None:
        if status.is_reconciled and status.state.is_terminal:
            self.histories[status.task_id].failed_ends.add(framework.client_id)

    # Operators.

    def on_operated(self, name: str, action: AgentAction, status: AgentStatus) -> None:
        """Check that an operator's change is durable, or was replaced by a later one."""
        self.seen["operations"] += 1
        agent_id = status.agent.agent_id
        records = self.agents.get(agent_id, [])
        match action:
            case Drain():
                held = any(record.drain is not None for record in records)
            case Deactivate():
                held = any(record.deactivated for record in records)
            case Reactivate():
                held = any(not record.deactivated and record.drain is None for record in records)
            case MarkGone():
                held = any(record.gone for record in records)
                self.gone.add(name)
                self.gone_ids.add(agent_id)
        held = held or self.is_store_old
        must(held, f"{action} of {name} is answered and not durable: {records[-1:]}")

    # The end.

    def unfinished(self) -> list[str]:
        """Return in words the accepted tasks that still run or whose end was not handled."""
        left = []
        for task_id, history in self.histories.items():
            if history.run is not None and history.run.lives:
                left.append(f"{task_id} still runs")
            elif history.accepted and not (
                history.is_known or history.excused or self._is_lost(history)
            ):
                left.append(f"{task_id} was accepted, and its framework never received its end")
        return left

    def _is_lost(self, history: TaskHistory) -> bool:
        """Return whether both an older store and the agent may have lost the task."""
        host = history.machine.name if history.machine is not None else ""
        return self.is_store_old and (host in self.damaged or host in self.gone)


def _host_of(agent_id: AgentId) -> str:
    """Return the machine of an agent, from the id that it chose."""
    return agent_id[1:].partition(".")[0]
