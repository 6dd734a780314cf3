"""Traces of a master: from the facts of its terms to a collector, one trace for each task.

The span `task` lasts from the first fact about a task until its end is acknowledged. Within it are
`queued` or `offered`, `placed` (the launch order is under way), `launched` (the agent starts it),
`running`, and `ended` (until the acknowledgement). The cost for each fact is a few microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from croupier.master.core import facts
from croupier.master.core.state import State
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.task import TaskState
from croupier.net.version import croupier_version
from croupier.process.logging import get_logger
from croupier.process.metric_families import Family
from croupier.process.queue_writer import QueueWriter

# The label of a task with its W3C trace context, such as 00-TRACE-SPAN-01.
LABEL: Final = "traceparent"
_CONTEXT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

# Tasks beyond these are not traced: about 50 MB.
MAX_TASKS = 100_000
MAX_TEXT = 256
# The step that a task is in after it came into a state; other states are not a step.
_STEPS: Final = {
    TaskState.QUEUED: "queued",
    TaskState.STAGING: "placed",
    TaskState.STARTING: "launched",
    TaskState.RUNNING: "running",
}
_ENDED: Final = "ended"
Labels = Callable[[FrameworkId, TaskId], Mapping[str, str]]
Key = tuple[FrameworkId, TaskId]

# About 10 MB.
MAX_SPANS: Final = 10_000
FLUSH_S: Final = 1.0
# The longest wait at the end of the master.
END_S: Final = 2.0

_log = get_logger("croupier.traces")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace of a task; `parent_id` is the span that launched it, 0 if there is none."""

    trace_id: int
    parent_id: int = 0
    is_sampled: bool = True


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a task's life that has ended.

    Attributes:
        parent_id: 0 for the first span of a trace.
        is_remote: whether the parent is a span of the framework's.
        start_ns: as `end_ns`, nanoseconds since 1970.
        error: why it failed; empty if it did not.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    attributes: dict[str, str] = field(default_factory=dict)
    error: str = ""
    is_remote: bool = False


def parse_context(text: str) -> TraceContext | None:
    """Read a W3C `traceparent`; None if it is not one."""
    match = _CONTEXT.fullmatch(text)
    if match is None:
        return None
    version, trace, parent, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace, 16) or not int(parent, 16):
        return None
    return TraceContext(int(trace, 16), int(parent, 16), bool(int(flags, 16) & 1))


@dataclass(slots=True)
class _Life:
    context: TraceContext
    span_id: int
    began_ns: int
    step: str
    step_began_ns: int
    attributes: dict[str, str] = field(default_factory=dict)
    error: str = ""


class TaskSpans:
    """Turns facts into spans; counts as `untraced` the tasks that were too many to be traced."""

    def __init__(
        self, emit: Callable[[Span], None], labels: Labels, ratio: float, rng: Random
    ) -> None:
        """Pass each span to `emit`, which must not block.

        `labels` returns those of a task. Of tasks without a trace context, the part `ratio` is
        traced.
        """
        self._emit, self._labels, self._ratio, self._rng = emit, labels, ratio, rng
        self._lives: dict[Key, _Life] = {}
        # Tasks that were launched on offers whose end has not been reported.
        self._accepted: dict[FrameworkId, list[TaskId]] = {}
        self.untraced = 0

    def happened(self, fact: facts.Fact, now_ns: int) -> None:
        """Note a fact at `now_ns`, in nanoseconds since 1970."""
        match fact:
            case facts.TaskMoved():
                self._on_moved(fact, now_ns)
            case facts.OfferEnded(outcome="accepted"):
                self._on_accepted(fact, now_ns)
            case facts.FrameworkLeft(why="removed"):
                gone = [key for key in self._lives if key[0] == fact.framework_id]
                for key in gone:
                    self._end(key, now_ns)

    def acknowledged(self, framework_id: FrameworkId, task_id: TaskId, now_ns: int) -> None:
        """Note that the end of a task was acknowledged."""
        self._end((framework_id, task_id), now_ns)

    def clear(self) -> None:
        """Forget all tasks, at the end of a term."""
        self._lives.clear()
        self._accepted.clear()

    def _on_moved(self, fact: facts.TaskMoved, now_ns: int) -> None:
        step = _ENDED if fact.state.is_terminal else _STEPS.get(fact.state, "")
        key = (fact.framework_id, fact.task_id)
        life = self._lives.get(key)
        if life is None:
            if step in ("queued", "placed"):
                self._begin(key, step, now_ns)
                life = self._lives.get(key)
        elif step and step != life.step:
            self._finish_step(life, now_ns)
            life.step, life.step_began_ns = step, now_ns
        if life is None:
            return
        life.attributes["croupier.state"] = fact.state.name
        if fact.agent_id:
            life.attributes["croupier.agent_id"] = fact.agent_id
        if fact.reason:
            life.attributes["croupier.reason"] = fact.reason.name
        if fact.state.is_failure:
            life.error = (fact.message or fact.reason.name)[:MAX_TEXT]

    def _on_accepted(self, fact: facts.OfferEnded, now_ns: int) -> None:
        for task_id in self._accepted.pop(fact.framework_id, ()):
            life = self._lives.get((fact.framework_id, task_id))
            if life is not None:
                life.began_ns = now_ns - int(fact.held_s * 1e9)
                life.attributes["croupier.offer_id"] = fact.offer_id
                self._child(life, "offered", life.began_ns, now_ns)

    def _begin(self, key: Key, step: str, now_ns: int) -> None:
        context = parse_context(self._labels(*key).get(LABEL, ""))
        if context is None:
            context = TraceContext(self._id(128), 0, self._rng.random() < self._ratio)
        if not context.is_sampled:
            return
        if len(self._lives) >= MAX_TASKS:
            self.untraced += 1
            return
        ids = {"croupier.framework_id": str(key[0]), "croupier.task_id": str(key[1])}
        self._lives[key] = _Life(context, self._id(64), now_ns, step, now_ns, ids)
        if step == "placed":
            self._accepted.setdefault(key[0], []).append(key[1])

    def _end(self, key: Key, now_ns: int) -> None:
        life = self._lives.pop(key, None)
        if life is None:
            return
        self._finish_step(life, now_ns)
        context = life.context
        span = Span(
            "task",
            context.trace_id,
            life.span_id,
            context.parent_id,
            life.began_ns,
            now_ns,
            life.attributes,
            life.error,
            is_remote=bool(context.parent_id),
        )
        self._emit(span)

    def _finish_step(self, life: _Life, now_ns: int) -> None:
        self._child(life, life.step, life.step_began_ns, now_ns)

    def _child(self, life: _Life, name: str, start_ns: int, end_ns: int) -> None:
        attributes = dict(life.attributes)
        is_bad = name == _ENDED and life.error
        trace_id, parent_id = life.context.trace_id, life.span_id
        self._emit(
            Span(
                name,
                trace_id,
                self._id(64),
                parent_id,
                start_ns,
                max(end_ns, start_ns),
                attributes,
                life.error if is_bad else "",
            )
        )

    def _id(self, bits: int) -> int:
        return self._rng.getrandbits(bits) or 1


@dataclass(frozen=True, slots=True)
class Tracing:
    """Traces the tasks of all terms of this process; `queue` has the spans on their way."""

    queue: QueueWriter[Span]
    spans: TaskSpans


def make_tracing(
    endpoint: str, ratio: float, instance: str, state: Callable[[], State | None]
) -> Tracing:
    """Start the thread that sends traces to a collector; imports OpenTelemetry.

    Labels of tasks are read from `state`, which is None between terms. Of tasks without a trace
    context, the part `ratio` is traced. Raises InvalidRequest if OpenTelemetry is not installed.
    """
    try:
        from croupier.master.tracing.export import otlp_export
    except ImportError as error:
        raise InvalidRequest(f"--otel-endpoint: {error}; pip install 'croupier[otel]'") from error

    export = otlp_export(endpoint, croupier_version(), instance)

    def send(spans: list[Span]) -> None:
        if not export(spans):
            raise Unavailable("the collector did not take them")

    def on_failed(error: Exception) -> None:
        _log.warning("traces_not_exported", reason=str(error))

    def labels(framework_id: FrameworkId, task_id: TaskId) -> Mapping[str, str]:
        now = state()
        framework = None if now is None else now.frameworks.get(framework_id)
        task = None if framework is None else framework.tasks.get(task_id)
        return {} if task is None else dict(task.info.labels)

    queue = QueueWriter("traces", send, on_failed, most=MAX_SPANS, pause_s=FLUSH_S)
    return Tracing(queue, TaskSpans(queue.put, labels, ratio, Random()))


TRACING: Final[tuple[Family[Tracing], ...]] = (
    Family(
        "trace_spans",
        "Spans by outcome: exported, failed (the collector did not take them) or dropped (the"
        " queue was full).",
        lambda tracing: {
            "exported": tracing.queue.written,
            "failed": tracing.queue.failed,
            "dropped": tracing.queue.dropped,
        },
        ("outcome",),
        is_counter=True,
    ),
    Family(
        "trace_tasks_left_out",
        "Tasks that were not traced because too many were being traced.",
        lambda tracing: tracing.spans.untraced,
        is_counter=True,
    ),
)
