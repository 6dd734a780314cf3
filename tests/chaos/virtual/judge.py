"""The judge observes a whole world, and raises when an invariant is violated.

It knows all calls and verdicts, all processes and their exits, the durable records at the time of
each message, and the updates that each framework's handler received.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from croupier.agent.core import effects as fx
from croupier.agent.core.events import Event as AgentEvent
from croupier.agent.core.events import GroupLaunch, TaskLaunch
from croupier.agent.core.records import GroupRecord, KillRecord
from croupier.agent.core.records import TaskRecord as AgentTaskRecord
from croupier.master.core import calls
from croupier.master.core.agent_commands import AgentAction, Deactivate, Drain, MarkGone, Reactivate
from croupier.master.core.agent_status import AgentStatus
from croupier.master.core.records import task_key
from croupier.model.agent_orders import LaunchTask, RecallTask
from croupier.model.devices import slots_of
from croupier.model.ids import TaskId
from croupier.model.resources import total_of
from croupier.model.task import Reason, TaskState, TaskStatus
from croupier.model.task_group import GroupPart
from tests.chaos.virtual.agent import AgentProcess
from tests.chaos.virtual.framework import FrameworkProcess
from tests.chaos.virtual.machine import Machine, Run
from tests.chaos.virtual.master_judge import MasterJudge, host_of
from tests.chaos.virtual.task_history import TaskHistory, must


class Judge(MasterJudge):
    """The observer of a world."""

    # Agents.

    def on_agent_step(
        self, agent: AgentProcess, epoch: int | None, event: AgentEvent, effects: list[fx.Effect]
    ) -> None:
        old = epoch is not None and epoch < self.obeyed.get(agent.name, 0)
        must(not old, f"{agent.name} obeys epoch {epoch}: {event}")
        self.messages.on_agent_step(event, effects)
        for effect in effects:
            if isinstance(effect, fx.SendUpdates):
                self._note_ends(effect.statuses)
            elif isinstance(effect, fx.SendRegister):
                self._note_ends(task.status for task in agent.state.tasks.values())
        if self.moments:
            self._come_groups(agent, effects)
        self._note_line(agent, event, effects)
        if agent.state.groups:
            self._check_groups(agent)
        launches = LaunchTask | TaskLaunch | GroupLaunch
        if isinstance(event, launches) and not agent.state.health.is_healthy:
            taken = [each for each in effects if isinstance(each, fx.Checkpoint | fx.Spawn)]
            must(not taken, f"{agent.name} is unhealthy and records a launch: {taken}")

    def _note_ends(self, statuses: Iterable[TaskStatus]) -> None:
        for status in statuses:
            history = self.histories[status.task_id]
            if status.state.is_terminal and status.sequence + 1 not in history.restarts:
                history.is_over = True

    def _come_groups(self, agent: AgentProcess, effects: list[fx.Effect]) -> None:
        for effect in effects:
            match effect:
                case fx.Checkpoint(GroupRecord()):
                    self.comes("group", agent.name)
                case fx.Checkpoint(KillRecord(reason=Reason.GROUP_ENDED)):
                    self.comes("end of a group", agent.name)

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

    def _check_gang(self, run: Run) -> None:
        """Check that the others of a gang are placed: the ledger has them on agents, or no more.

        If the gang starts again meanwhile, this run is to be ended.
        """
        framework_id, task_id = run.key
        ledger = self.registry().tasks
        own = ledger.get(task_key(framework_id, task_id))
        is_killed = own is not None and (own.kill is not None or own.queued is not None)
        for other in self.histories[task_id].gang:
            record = ledger.get(task_key(framework_id, other))
            is_placed = record is None or record.queued is None or is_killed
            must(is_placed or self.is_store_old, f"{task_id} starts, and {other} is queued")

    def _note_line(self, agent: AgentProcess, event: AgentEvent, effects: list[fx.Effect]) -> None:
        """Note which lined-up tasks must not start any more, before they are ordered again."""
        tasks = agent.state.tasks
        if isinstance(event, LaunchTask | TaskLaunch):
            order = event if isinstance(event, LaunchTask) else event.order
            self.histories[order.task.task_id].recalled.discard(agent.name)
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
            self.comes("sync", agent.name)
        self.obeyed[agent.name] = max(epoch, self.obeyed.get(agent.name, 0))

    def on_process(self, machine: Machine, run: Run) -> None:
        """Check that the process may be started."""
        if self.moments:
            self.comes("process", machine.name)
        _, task_id = run.key
        history = self.histories[task_id]
        self.seen["processes"] += 1
        # An older copy of the store may hold a task as queued that has run since. A master that no
        # agent has told yet that its copy is old cannot know that.
        # Tasks in executors have no sandbox by which their agent could tell.
        may_repeat = (history.submitted or run.executor is not None) and self.is_store_old
        # One that was lost with an order to launch begins when it comes back, and ends it then.
        is_left = machine.name in history.left_at
        self.seen["in executors"] += run.executor is not None
        must(history.run is None or may_repeat or is_left, f"{task_id} is started twice")
        must(not history.refused, f"{task_id} was refused and is started")
        is_recalled = machine.name in history.recalled
        must(not is_recalled, f"{task_id} was recalled and is started")
        self.seen["started from a line"] += history.lined_up
        # A task on an agent that was declared gone may still run.
        is_lost = is_left or machine.name in self.gone
        ended = bool(history.ends) and not is_lost and not self.is_store_old
        must(not ended, f"{task_id} is started after its terminal update")
        history.run, history.machine = run, machine
        if history.gang:
            self.seen["started in gangs"] += 1
            self._check_gang(run)
        if history.group:
            self.seen["started in groups"] += 1
            if machine.name not in self.damaged:
                self._check_whole(machine, task_id)
        live = (*machine.live, *(each for each in machine.in_executors if each.lives))
        held = total_of(each.resources for each in live)
        must(held <= machine.total, f"{machine.name} has {machine.total}, {held} are used")
        if machine.inventory is not None:
            self._check_devices(machine, live)

    def _check_devices(self, machine: Machine, live: Sequence[Run]) -> None:
        """Check that each process has as many slots as it counts, and no two share one."""
        assert machine.inventory is not None
        users: dict[str, TaskId] = {}
        for run in live:
            task_id, slots = run.key[1], slots_of(run.resources)
            is_certain = machine.inventory.is_certain(run.resources)
            must(is_certain, f"{task_id} has {run.resources}, and no such devices")
            for slot in sorted(slots):
                other = users.setdefault(slot, task_id)
                must(other == task_id, f"{task_id} and {other} have device {slot}")
        self.seen["slots of devices"] += len(slots_of(live[-1].resources)) if live else 0

    def on_launched_again(self, task_id: TaskId) -> None:
        """Check that only an older copy of the store launches a task in its executor again."""
        must(self.is_store_old, f"{task_id} is launched in its executor twice")

    def on_process_end(self, machine: Machine, run: Run) -> None:
        if self.moments:
            self.comes("end", machine.name)

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
                    members = tuple(each.task_id for each in tasks)
                    history.gang = members if task.gang is not None else ()
            case calls.Kill(task_id):
                self.histories[task_id].killers.add("framework")
            case calls.Withdraw(task_ids):
                for task_id in task_ids:
                    self.histories[task_id].killers.add("framework")
            case calls.SendMessage(task_id, data):
                self.messages.on_sent(data, (framework.framework_id, task_id))
            case _:
                pass

    def on_new_identity(self, framework: FrameworkProcess) -> None:
        """Excuse the tasks of the old identity of a framework."""
        self.excuse(framework.framework_id)

    def on_handled(self, framework: FrameworkProcess, status: TaskStatus) -> None:
        """Check an update after its handler has returned."""
        history = self.histories[status.task_id]
        self.seen["updates"] += 1
        self.answered.add(status.task_id)
        history.is_known = history.is_known or status.state.is_terminal
        host = history.machine.name if history.machine is not None else host_of(status.agent_id)
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
