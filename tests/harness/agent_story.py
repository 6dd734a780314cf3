"""The cases of tests/scenarios/agent: one agent's core."""

from __future__ import annotations

from dataclasses import replace

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core import records as rec
from croupier.agent.core.recovery import recovered
from croupier.agent.core.tasks import Key
from croupier.agent.reactor import Message
from croupier.model.agent_orders import (
    AcknowledgeUpdate,
    ExecutorMessage,
    KillTask,
    LaunchGroup,
    LaunchTask,
    RecallTask,
    ResendUpdates,
    SetVolume,
)
from croupier.model.errors import Conflict
from croupier.model.executor import ExecutorSpec
from croupier.model.health import Problem
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.isolation import Feature, Isolation, Limits, Usage
from croupier.model.preemption import TaskPreemption, parse_checkpoint_signal
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, Source, TaskState, TaskStatus
from croupier.model.task_group import TaskGroup, parse_part
from tests.harness.agent_core import TOTAL, World, task

USED = Usage(cpu_ms=10, memory_peak=5_000)
OVER = {
    "disk": ev.Exceeded(Reason.DISK_LIMIT, "its sandbox took 12 MiB, its limit is 10 MiB"),
    "more-disk": ev.Exceeded(Reason.DISK_LIMIT, "its sandbox took 14 MiB, its limit is 10 MiB"),
    "memory": ev.Exceeded(Reason.MEMORY_LIMIT, "it needed more memory than its limit of 8 MiB"),
}


def key_of(name: str) -> Key:
    """Return the task of `t1` or `F2/t1`."""
    framework_id, _, task_id = name.rpartition("/")
    return FrameworkId(framework_id or "F1"), TaskId(task_id)


def named(key: Key) -> str:
    return key[1] if key[0] == "F1" else "/".join(key)


def ms(seconds: str) -> int:
    return round(float(seconds) * 1000)


def status_text(status: TaskStatus) -> str:
    """Describe a status by all that it does not share with most."""
    parts = [named((status.framework_id, status.task_id)), status.state.name, f"#{status.sequence}"]
    parts += [f"on {status.agent_id}"] if status.agent_id != "A1" else []
    parts += ["by the agent"] if status.source is Source.AGENT else []
    assert status.source in (Source.AGENT, Source.EXECUTOR)
    assert status.decided_in_s is None
    assert not status.is_reconciled
    for name in ("pid", "exit_code", "signal"):
        if (number := getattr(status, name)) not in (None, 0 if name == "pid" else None):
            parts.append(f"{name}={number}")
    parts += [f"time={status.time_ms}"] if status.time_ms != 5000 else []
    parts += [status.reason.name] if status.reason is not Reason.NONE else []
    parts += [f'"{status.message}"'] if status.message else []
    usage = status.usage and replace(status.usage, run_ms=0)
    parts += ["measured"] if usage == USED else []
    parts += [f"then {status.successor}"] if status.successor else []
    return " ".join(parts)


def record_text(record: rec.Record) -> str:
    match record:
        case rec.AgentRecord(agent_id, boot_id, epoch, incomplete, cluster):
            assert not cluster
            lost = ", with lost records" if incomplete else ""
            return f"agent {agent_id} of {boot_id or 'no boot'}, epoch {epoch}{lost}"
        case rec.PositionRecord(position):
            return f"position {position}"
        case rec.FrameworkRecord(framework_id, epoch):
            return f"framework {framework_id} epoch {epoch}"
        case rec.ForgetFramework(framework_id):
            return f"no framework {framework_id}"
        case rec.TaskRecord():
            run = record.run or "no run"
            role = "" if record.role == "*" else f" of {record.role}"
            return f"task {named(rec.key_of(record))}{role} #{record.first.sequence} {run}"
        case rec.UpdateRecord(status):
            return f"{named(rec.key_of(record))} #{status.sequence}"
        case rec.KillRecord(_, _, grace_ms, reason, message):
            cause = f': "{message}"' if message else ""
            return f"kill {named(rec.key_of(record))} {grace_ms / 1000:g} s {reason.name}{cause}"
        case rec.AcknowledgedRecord(_, _, sequence):
            return f"{named(rec.key_of(record))} acknowledged #{sequence}"
        case rec.VoidRecord():
            return f"void {named(rec.key_of(record))}"
        case rec.ForgetTask():
            return f"no task {named(rec.key_of(record))}"
        case rec.GroupRecord(_, group_id):
            return f"group {group_id}"
        case rec.ForgetGroup(_, group_id):
            return f"no group {group_id}"


def effect_text(effect: fx.Effect) -> str:
    match effect:
        case fx.Moved(status):
            return status_text(status)
        case fx.Checkpoint(record, lazy):
            return f"save {'lazily ' if lazy else ''}{record_text(record)}"
        case fx.Acknowledged(count):
            return f"{count} acknowledged"
        case fx.Spawn(key, run, again, _):
            return f"spawn {named(key)} {run}{' again' if again else ''}"
        case fx.Signal(key, pid, number):
            return f"{number.name} to {named(key)}, pid {pid}"
        case fx.Adopt(key, run):
            return f"adopt {named(key)} {run}"
        case fx.ForgetRun(key, run):
            return f"forget run {run} of {named(key)}"
        case fx.CancelLaunch(key) | fx.Forget(key):
            verb = "cancel" if isinstance(effect, fx.CancelLaunch) else "forget"
            return f"{verb} {named(key)}"
        case fx.ForgetGroup() | SetVolume():
            return shared_text(effect)
        case fx.Outdated(key, epoch):
            return f"outdated {named(key)} epoch {epoch}"
        case fx.CheckHealth(within_s, is_thorough):
            return f"check health within {within_s:g} s{' thoroughly' if is_thorough else ''}"
        case fx.ToExecutor() | fx.CloseExecutor() | fx.Dropped():
            return for_executor_text(effect)
        case _:
            return message_text(effect)


def shared_text(effect: fx.ForgetGroup | SetVolume) -> str:
    match effect:
        case fx.ForgetGroup((_, group_id)):
            return f"forget group {group_id}"
        case SetVolume(volume, size):
            return f"{'keep' if size else 'remove'} volume {volume.volume_id}"


def for_executor_text(effect: fx.ToExecutor | fx.CloseExecutor | fx.Dropped) -> str:
    match effect:
        case fx.ToExecutor(connection, message):
            return f"to executor {connection}: {executor_text(message)}"
        case fx.CloseExecutor(connection, why):
            return f'close executor {connection} "{why}"'
        case fx.Dropped(what):
            return f"dropped {what}"


def executor_text(
    message: fx.Welcome | fx.RunTask | fx.EndTask | fx.UpdateDurable | fx.Said | fx.ShutDown,
) -> str:
    """Describe what is sent to an executor."""
    match message:
        case fx.Welcome(framework_id, agent_id, info):
            return f"welcome {named((framework_id, info.task_id))} on {agent_id}"
        case fx.RunTask(info):
            return f"run {info.task_id}"
        case fx.EndTask(task_id, grace_ms):
            return f"end {task_id} within {grace_ms / 1000:g} s"
        case fx.UpdateDurable(task_id, update_id):
            return f"durable {task_id} {update_id.decode()}"
        case fx.Said(data):
            return f"said {data.decode()}"
        case fx.ShutDown(grace_ms):
            return f"shut down within {grace_ms / 1000:g} s"


def message_text(message: Message) -> str:
    """Describe what is sent to the master, and in which session."""
    match message:
        case fx.SendMessage(_, said):
            text = f"said by {named((said.framework_id, said.task_id))}: {said.data.decode()}"
        case fx.SendRegister():
            text = "register"
        case fx.SendUpdates(_, statuses, again, may_wait):
            numbers = ",".join(f"#{each.sequence}" for each in statuses)
            ways = (" again" if again else "") + (" soon" if may_wait else "")
            text = f"send {named((statuses[0].framework_id, statuses[0].task_id))} {numbers}{ways}"
        case fx.RefuseLaunch(_, key, why):
            text = f'refuse {named(key)} "{why}"'
        case fx.ReturnTasks(_, keys):
            text = f"return {' '.join(map(named, keys))}"
        case fx.HealthChanged(_, problems):
            told = "; ".join(f"{each.part}: {each.message}" for each in problems)
            text = f'report "{told or "healthy"}"'
    return text if message.session == 1 else f"{text} in session {message.session}"


class AgentCase:
    """A registered agent with the id A1, and the commands of one block."""

    def __init__(self) -> None:
        self._world = World(registered=False)
        self._world.state.boot_id = "boot-1"
        self._lives = 0
        # Durable records of earlier lives, and the first effect of this one.
        self._records: list[rec.Record] = []
        self._life = 0
        self._begin(AgentId("A1"))
        self._taken = len(self._world.effects)

    def _begin(self, agent_id: AgentId) -> None:
        self._world.do(
            ev.AgentStarted(), ev.Connected(1), ev.MasterSeen(3), ev.Registered(agent_id)
        )

    def take(self) -> list[str]:
        """Return a line for each effect since the last call."""
        taken, self._taken = self._taken, len(self._world.effects)
        return [effect_text(each) for each in self._world.effects[taken:]]

    # Orders of the master.

    def _do_launch(
        self, name: str = "t1", *how: str, grace: str = "3", within: str = "0", role: str = "*",
        epoch: str = "0", res: str = "cpus:1;mem:100MB", image: str = "", pids: str = "0",
        mem: str = "0", argv: str = "true", executor: str = "", api: str = "", register: str = "60",
        checkpoint: str = "", after: str = "0",
    ) -> None:  # fmt: skip
        framework_id, task_id = key_of(name)
        command = Command() if executor else Command(argv=(argv,))
        spec = ExecutorSpec(ms(register), api=api) if "as-executor" in how else None
        info = replace(
            task(task_id, res, ms(grace)),
            max_completion_ms=ms(within),
            isolation=Isolation(image=image),
            limits=Limits(mem=int(mem), pids=int(pids)),
            command=command,
            executor=spec,
            executor_id=TaskId(executor),
            preemption=TaskPreemption(checkpoint_signal=parse_checkpoint_signal(checkpoint)),
        )
        order = LaunchTask(
            framework_id,
            info,
            Role(role),
            int(epoch),
            lined_up="lined-up" in how,
            sequence=int(after),
        )
        self._world.do(ev.TaskLaunch(order, has_sandbox=True) if "into-sandbox" in how else order)

    def _do_group(self, group_id: str, *names: str, res: str = "cpus:1;mem:100MB") -> None:
        """Launch a group: `group g t1 t2:sidecar`."""
        orders = []
        for named_part in names:
            name, _, part = named_part.partition(":")
            framework_id, task_id = key_of(name)
            group = TaskGroup(group_id, parse_part(part or "member"))
            info = replace(task(task_id, res, ms("3")), group=group)
            orders.append(LaunchTask(framework_id, info, Role("*")))
        self._world.do(LaunchGroup(tuple(orders)))

    def _do_registers(self, name: str, connection: str, *listed: str) -> None:
        tasks = frozenset(map(TaskId, listed))
        self._world.do(ev.ExecutorRegistered(key_of(name), int(connection), tasks))

    def _do_leaves(self, name: str, connection: str) -> None:
        self._world.do(ev.ExecutorLeft(key_of(name), int(connection)))

    def _do_updates(
        self,
        name: str,
        connection: str,
        task_id: str,
        state: str,
        update_id: str,
        message: str = "",
    ) -> None:
        given = (TaskId(task_id), TaskState[state], update_id.encode(), message)
        self._world.do(ev.ExecutorUpdated(key_of(name), int(connection), *given))

    def _do_says(self, name: str, connection: str, data: str) -> None:
        self._world.do(ev.ExecutorSaid(key_of(name), int(connection), data.encode()))

    def _do_message(self, name: str, data: str) -> None:
        self._world.do(ExecutorMessage(*key_of(name), data.encode()))

    def _do_kill(
        self, name: str = "t1", grace: str = "", reason: str = "KILLED_BY_FRAMEWORK",
        epoch: str = "0",
    ) -> None:  # fmt: skip
        grace_ms = ms(grace) if grace else None
        self._world.do(KillTask(*key_of(name), grace_ms, Reason[reason], int(epoch)))

    def _do_acknowledge(self, name: str, sequence: str) -> None:
        self._world.do(AcknowledgeUpdate(*key_of(name), int(sequence)))

    def _do_resend(self, framework_id: str) -> None:
        self._world.do(ResendUpdates(FrameworkId(framework_id)))

    def _do_recall(self, name: str) -> None:
        self._world.do(RecallTask(*key_of(name)))

    # Runs of tasks.

    def _do_started(self, name: str = "t1", pid: str = "7") -> None:
        self._world.do(ev.Started(key_of(name), int(pid)))

    def _do_failed(
        self, name: str, text: str = "it failed", code: str = "", cause: str = ""
    ) -> None:
        exit_code = int(code) if code else None
        self._world.do(ev.LaunchFailed(key_of(name), text, exit_code, cause))

    def _do_not_started(self, name: str = "t1") -> None:
        self._world.do(ev.NotStarted(key_of(name)))

    def _do_prepared(self, name: str, run: str, *how: str) -> None:
        self._world.do(ev.Prepared(fx.Spawn(key_of(name), run, again="again" in how)))

    def _do_exited(
        self, name: str = "t1", *how: str, code: str = "", signal: str = "", over: str = "",
        text: str = "",
    ) -> None:  # fmt: skip
        usage = USED if over or "measured" in how else None
        notes = (text,) if text else ()
        ending = ev.Ending(usage, OVER.get(over), notes)
        exit_code, number = (int(each) if each else None for each in (code, signal))
        self._world.do(ev.Exited(key_of(name), exit_code, number, not (code or signal), ending))

    def _do_exceeds(self, over: str, run: str = "0-1", name: str = "t1") -> None:
        self._world.do(ev.LimitExceeded(key_of(name), run, OVER[over]))

    def _do_adopted(self, name: str = "t1", pid: str = "7", age: str = "") -> None:
        self._world.do(ev.Adopted(key_of(name), int(pid), float(age) if age else None))

    def _do_vanished(self, name: str = "t1", *how: str, over: str = "") -> None:
        ending = ev.Ending(USED, OVER[over]) if over else ev.NO_ENDING
        self._world.do(ev.Vanished(key_of(name), "", "never-started" in how, ending))

    # The agent.

    def _do_sleep(self, seconds: str) -> None:
        self._world.sleep(float(seconds))

    def _do_connected(self, session: str) -> None:
        self._world.do(ev.Connected(int(session)))

    def _do_disconnected(self, session: str) -> None:
        self._world.do(ev.Disconnected(int(session)))

    def _do_registered(self, agent_id: str = "A1") -> None:
        self._world.do(ev.Registered(AgentId(agent_id)))

    def _do_removed(self) -> None:
        self._world.do(ev.Removed())

    def _do_stop(self) -> None:
        self._world.do(ev.StopRequested())

    def _do_checked(self, *parts: str, by: str = "") -> None:
        problems = tuple(Problem(part, "it is broken") for part in parts)
        self._world.do(ev.HealthChecked(problems, by == "trial"))

    def _do_disk_full(self) -> None:
        self._world.do(ev.DiskFull())

    def _do_features(self, *names: str) -> None:
        self._world.state.features = frozenset(Feature(each) for each in names)

    def _do_new(self) -> None:
        """Begin again as an agent that no master knows."""
        self._world, self._taken = World(registered=False), 0

    def _do_begin(self) -> None:
        self._world.do(ev.AgentStarted())

    def _do_life(
        self, *how: str, down: str = "0", boot: str = "boot-1", until: str = "", lose: str = "",
        total: str = "",
    ) -> str | None:  # fmt: skip
        """Continue as the next agent, with the records up to a kind and without those of a kind."""
        done = self._world.effects[self._life :]
        made = [*self._records, *(e.record for e in done if isinstance(e, fx.Checkpoint))]
        kinds = [type(each).__name__ for each in made]
        end = len(kinds) - kinds[::-1].index(until) if until else len(kinds)
        records = [each for each, kind in zip(made[:end], kinds, strict=False) if kind != lose]
        self._lives += 1
        try:
            self._world.state = recovered(
                records,
                Resources.parse(total) if total else TOTAL,
                boot_id="" if boot == "none" else boot,
                life=str(self._lives),
                incomplete="incomplete" in how,
                lenient="lenient" in how,
            )
        except Conflict as error:
            return f'refused "{error}"'
        self._records, self._life = records, len(self._world.effects)
        self._world.wall_ms += ms(down)
        self._world.do(ev.AgentStarted())
        return None

    def _do_show(self) -> str:
        """Print the state by all that is not as at the start."""
        state = self._world.state
        waiting = ",".join(
            f"#{each.sequence}" for t in state.tasks.values() for each in t.updates.waiting
        )
        known = [*state.tasks, *state.voided]
        live = [named(key) for key in known if state.is_live(key)]
        wanted = [named(key) for key in known if state.wants_process(key)]
        wakes = state.next_deadline()
        parts = [
            f"agent {state.agent_id or 'without an id'}",
            "all free" if state.free == state.total else f"free {state.free}",
            f"tasks {' '.join(map(named, state.tasks)) or 'none'}",
            f"live {' '.join(live)}" if live else "",
            f"waiting {waiting}" if waiting else "",
            f"to start {' '.join(wanted)}" if wanted else "",
            "idle" if state.is_idle else "busy",
            f"session {state.session}",
            f"line {' '.join(map(named, state.line))}" if state.line else "",
            f"void {' '.join(map(named, state.voided))}" if state.voided else "",
            f"wakes in {wakes - self._world.now:g} s" if wakes is not None else "",
            "" if state.health.is_healthy else "unhealthy",
            "incomplete" if state.record.incomplete else "",
        ]
        return ", ".join(filter(None, parts))
