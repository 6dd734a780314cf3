"""The cases of tests/scenarios/failover: an agent, a framework, and a master that restarts."""

from __future__ import annotations

from croupier.master.core import calls
from croupier.master.core import facts as fact
from croupier.master.core import records as rec
from croupier.master.core.agent_commands import (
    AgentAction,
    Deactivate,
    Drain,
    MarkGone,
    OperateAgent,
    Reactivate,
)
from croupier.master.core.agent_status import AgentStatus, drain_progress
from croupier.master.core.effects import Answer, Close, Effect, Happened, Save, Send, SessionId
from croupier.master.core.events import (
    AgentHealth,
    AgentReported,
    AgentStopped,
    Claim,
    Received,
    RefusedLaunch,
)
from croupier.master.core.framework_commands import TeardownFramework, TornDown
from croupier.master.core.messages import (
    AgentFailed,
    Offered,
    Placed,
    Registered,
    Rescinded,
    Subscribed,
    Updated,
)
from croupier.model.agent_orders import AcknowledgeUpdate, KillTask, LaunchTask, ResendUpdates
from croupier.model.errors import CroupierError
from croupier.model.health import Problem
from croupier.model.ids import FrameworkId, OfferId, TaskId
from croupier.model.task import MASTER_SEQUENCE, Reason, Source, TaskState, TaskStatus
from croupier.model.verdict import Verdict
from tests.harness.restarting import T1, Scene
from tests.harness.world import make_task

ACTIONS: dict[str, AgentAction] = {
    "drain": Drain(),
    "gone": MarkGone(),
    "deactivate": Deactivate(),
    "reactivate": Reactivate(),
}


def number(sequence: int) -> str:
    return "#master" if sequence == MASTER_SEQUENCE else f"#{sequence}"


def status_text(status: TaskStatus) -> str:
    parts = [f"{status.task_id} {status.state.name} {number(status.sequence)}"]
    parts += [status.reason.name] if status.reason is not Reason.NONE else []
    parts += [f"signal={status.signal}"] if status.signal is not None else []
    parts += ["reconciled"] if status.is_reconciled else []
    parts += [f"decided in {status.decided_in_s:g} s"] if status.decided_in_s is not None else []
    return " ".join([*parts, *([f'"{status.message}"'] if status.message else [])])


def message_text(message: object) -> str:
    """Describe what is sent to the framework or to the agent."""
    match message:
        case Offered(offer_id, _, _, resources):
            return f"offer {offer_id} {resources}"
        case Rescinded(offer_id, reason):
            return f'rescind {offer_id} "{reason}"'
        case Verdict(seq, error, tasks):
            refused = [f"{each.task_id} {each.error}" for each in tasks if each.error]
            return f"verdict {seq} {error or ', '.join(refused) or 'accepted'}"
        case Updated(statuses) | Placed(_, statuses):
            return ", ".join(map(status_text, statuses))
        case Subscribed() | Registered():
            return "welcome"
        case LaunchTask():
            return f"launch {message.task.task_id} epoch {message.framework_epoch}"
        case KillTask():
            grace = "" if message.grace_ms is None else f" within {message.grace_ms} ms"
            return f"kill {message.task_id} {message.reason.name}{grace}"
        case AgentFailed():
            return f'lost {message.hostname} "{message.message}"'
        case AcknowledgeUpdate():
            return f"acknowledged {message.task_id} {number(message.sequence)}"
        case ResendUpdates():
            return "resend"
        case _:
            return type(message).__name__


def record_text(record: rec.Record) -> str:
    match record:
        case rec.TaskRecord():
            parts = [
                record.task_id,
                f"of {record.client_id} {record.seq}" if record.seq else "unknown",
            ]
            parts += ["queued"] if record.queued else []
            parts += [f"kill {record.kill[1].name}"] if record.kill else []
            parts += [status_text(record.master_status)] if record.master_status else []
            parts += ["acknowledged"] if record.is_acknowledged else []
            return " ".join(parts)
        case rec.ForgetTask(_, task_id):
            return f"no {task_id}"
        case rec.FrameworkRecord():
            ends = " removed" if record.removed else ""
            return f"framework {record.client_id or 'unknown'} epoch {record.epoch}{ends}"
        case rec.AgentRecord():
            names = ("deactivated", "gone", "unreachable")
            parts = [name for name in names if getattr(record, name)]
            parts += ["to drain"] if record.drain else []
            return " ".join(["agent", *parts, str(record.total or "without resources")])
        case _:
            return type(record).__name__


def fact_text(happened: fact.Fact) -> str:
    """Describe a fact of the agent or an operator; others follow from messages."""
    match happened:
        case fact.AgentUnhealthy(_, _, problems):
            return f"unhealthy: {problems}"
        case fact.AgentHealthy():
            return "healthy"
        case fact.AgentOperated():
            return f"{happened.operator} operates: {happened.action}"
        case fact.AgentDrained():
            return "drained"
        case fact.AgentLeft():
            return f"left: {happened.why}"
        case fact.FrameworkTornDown():
            return f"{happened.operator} tears {happened.name} down with {happened.tasks} tasks"
        case _:
            return ""


def answer_text(result: object) -> str:
    match result:
        case AgentStatus():
            return f"{result.agent.hostname} is {result.state} with {result.tasks} tasks"
        case TornDown():
            return f"{result.name or 'none'} is torn down with {result.tasks} tasks"
        case _:
            return str(result)


class FailoverCase:
    """A registered agent, and a framework that has an offer of it."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._scene = Recorded(self._effects)
        self._effects.clear()

    def take(self) -> list[str]:
        """Return a line for each effect since the last call."""
        found = [text for each in self._effects if (text := self._text(each))]
        self._effects.clear()
        return found

    def _text(self, effect: Effect) -> str:
        match effect:
            case Send(session, message):
                return f"{self._name(session)} <- {message_text(message)}"
            case Close(session, error):
                how = f"{type(error).__name__}: {error}" if error else "orderly"
                return f"{self._name(session)} closed: {how}"
            case Save(record):
                return f"save {record_text(record)}"
            case Answer(1, CroupierError() as error):
                return f"refused: {type(error).__name__}: {error}"
            case Answer(1, result):
                return f"answer: {answer_text(result)}"
            case Happened(happened):
                return fact_text(happened)
            case _:
                return ""

    def _name(self, session: SessionId) -> str:
        known = {self._scene.session: "f", self._scene.host: "host"}
        return known.get(session, f"session {session}")

    # The framework.

    def _do_launch(self, *names: str) -> None:
        self._scene.launch(*map(make_task, names))

    def _do_accept(self, offer_id: str, *names: str, seq: str) -> None:
        """Accept an offer: `t2/cpus:9` is a task with other resources."""
        tasks = tuple(make_task(*name.split("/")) for name in names)
        self._call(calls.Accept((OfferId(offer_id),), tasks), seq)

    def _do_decline(self, offer_id: str, seq: str) -> None:
        self._call(calls.Decline((OfferId(offer_id),)), seq)

    def _do_acknowledge(self, sequence: str, seq: str) -> None:
        last = MASTER_SEQUENCE if sequence == "master" else int(sequence)
        self._call(calls.Acknowledge(((self._scene.host_id, T1, last),)), seq)

    def _do_reconcile(self, seq: str) -> None:
        self._call(calls.Reconcile((T1,)), seq)

    def _call(self, call: calls.Call, seq: str) -> None:
        self._scene.call(self._scene.session, call, int(seq))

    def _do_subscribe(self, client: str = "c1") -> None:
        self._scene.framework_back(client)

    # The agent.

    def _do_back(
        self, *how: str, waiting: str = "0", claim: str = "known", first: str = "1"
    ) -> None:
        """Register with `t1` if there are states; the last ones are not acknowledged."""
        self._scene.agent_back(
            *(TaskState[each] for each in how if each in TaskState.__members__),
            waiting=int(waiting),
            first=int(first),
            incomplete="incomplete" in how,
            claim=Claim[claim.upper()],
            problems=(Problem("disk", "it is bad"),) if "disk" in how else (),
        )

    def _status(self, state: str, sequence: int, text: str = "") -> TaskStatus:
        place = (self._scene.owner, T1, self._scene.host_id)
        more = (Reason.EXECUTOR_TERMINATED, text) if text else (Reason.NONE, "")
        signal = 9 if text else None
        return TaskStatus(
            *place, TaskState[state], Source.EXECUTOR, *more, sequence=sequence, signal=signal
        )

    def _do_report(self, state: str, sequence: str, text: str = "") -> None:
        """Report a state of `t1`; with a text, also a reason and a signal."""
        self._scene.do(AgentReported(self._scene.host, (self._status(state, int(sequence), text),)))

    def _do_health(self, *parts: str, refused: str = "") -> None:
        problems = tuple(Problem(part, "it is bad") for part in parts)
        names = [RefusedLaunch(self._scene.owner, TaskId(refused), "no")] if refused else []
        self._scene.do(AgentHealth(self._scene.host, problems, tuple(names)))

    def _do_stopped(self) -> None:
        self._scene.do(AgentStopped(self._scene.host, "bye"))

    # Both, and the master.

    def _do_received(self, name: str, seq: str = "0") -> None:
        session = self._scene.session if name == "f" else self._scene.host
        self._scene.do(Received(session, int(seq)))

    def _do_end(self, name: str) -> None:
        self._scene.end_session(self._scene.session if name == "f" else self._scene.host)

    def _do_operate(self, action: str) -> None:
        self._scene.do(OperateAgent(1, self._scene.host_id, ACTIONS[action], "me"))

    def _do_teardown(self, framework_id: str = "") -> None:
        known = FrameworkId(framework_id) or self._scene.owner
        self._scene.do(TeardownFramework(1, known, "me"))

    def _do_time(self, seconds: str) -> None:
        self._scene.pass_time(float(seconds))

    def _do_restart(self) -> None:
        self._scene.restart()

    def _do_lose(self, what: str) -> None:
        """Lose the records of tasks, or all."""
        scene = self._scene
        is_lost = rec.TaskRecord if what == "tasks" else object
        scene.saved = [each for each in scene.saved if not isinstance(each, is_lost)]
        scene.ledger.clear()

    def _do_show(self) -> str:
        """Print the agent's state and use, and where its tasks are."""
        scene = self._scene
        agent = scene.state.agents.get(scene.host_id)
        if agent is None:
            return f"host is unknown, {self._do_show_tasks()}"
        drain = drain_progress(scene.state, agent, scene.now)
        parts = [f"host is {agent.state.name}", *(["absent"] if agent.is_absent else [])]
        if drain is not None:
            parts.append("drained" if drain.is_done else f"draining within {drain.estimate_s} s")
            parts += [f"blocked: {each.reason}" for each in drain.blockers]
        used = scene.state.used(agent)
        return ", ".join(
            [*parts, f"uses {used}" if used else "uses nothing", self._do_show_tasks()]
        )

    def _do_show_tasks(self) -> str:
        framework = self._scene.state.frameworks.get(self._scene.owner)
        tasks = framework.tasks.values() if framework is not None else ()
        found = [f"{each.task_id} {each.state.name} {each.hold.value}" for each in tasks]
        return ", ".join(found) or "no tasks"


class Recorded(Scene):
    """A scene that adds all effects to a list."""

    def __init__(self, effects: list[Effect]) -> None:
        self._into = effects
        super().__init__()

    def _step(self, event: object) -> list[Effect]:
        effects = super()._step(event)  # type: ignore[arg-type]
        self._into += effects
        return effects
