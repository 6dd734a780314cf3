"""Traces of a master: from the facts of its terms to a collector."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from croupier.master.core import facts
from croupier.master.core.state import State
from croupier.master.tracing.task_spans import Span, TaskSpans
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import FrameworkId, TaskId
from croupier.net.version import croupier_version
from croupier.process.logging import get_logger
from croupier.process.metric_families import Family
from croupier.process.queue_writer import QueueWriter

CurrentState = Callable[[], State | None]

# About 10 MB.
MAX_SPANS: Final = 10_000
FLUSH_S: Final = 1.0
# The longest wait at the end of the master.
END_S: Final = 2.0

_log = get_logger("croupier.traces")


class Tracing:
    """Traces the tasks of all terms of this process.

    Attributes:
        queue: the spans on their way.
        spans: makes spans of facts.
    """

    def __init__(self, queue: QueueWriter[Span], ratio: float, state: CurrentState) -> None:
        """Trace the part `ratio` of the tasks that have no trace context.

        Labels of tasks are read from `state`, which is None between terms.
        """
        self.queue, self._state = queue, state
        self.spans = TaskSpans(queue.put, self._labels, ratio, Random())

    def happened(self, fact: facts.Fact) -> None:
        """Note a fact that the core reported."""
        self.spans.happened(fact, time.time_ns())

    def acknowledged(self, framework_id: FrameworkId, task_id: TaskId) -> None:
        """Note that the end of a task was acknowledged."""
        self.spans.acknowledged(framework_id, task_id, time.time_ns())

    def _labels(self, framework_id: FrameworkId, task_id: TaskId) -> Mapping[str, str]:
        state = self._state()
        framework = None if state is None else state.frameworks.get(framework_id)
        task = None if framework is None else framework.tasks.get(task_id)
        return {} if task is None else dict(task.info.labels)


def make_tracing(endpoint: str, ratio: float, instance: str, state: CurrentState) -> Tracing:
    """Start the thread that sends traces to a collector; imports OpenTelemetry.

    Raises:
        InvalidRequest: if OpenTelemetry is not installed.
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

    queue = QueueWriter("traces", send, on_failed, most=MAX_SPANS, pause_s=FLUSH_S)
    return Tracing(queue, ratio, state)


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
