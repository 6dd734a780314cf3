"""The spans of a task's life, from the facts of the core."""

from __future__ import annotations

from random import Random

from croupier.master.core.facts import FrameworkLeft, OfferEnded, TaskMoved
from croupier.master.tracing.tracing import Span, TaskSpans, parse_context
from croupier.model.ids import AgentId, FrameworkId, OfferId, TaskId
from croupier.model.task import Reason, Source, TaskState

F, T = FrameworkId("f"), TaskId("t")
S = 1_000_000_000
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """Spans of one task."""

    def __init__(self, label: str = "", ratio: float = 1.0) -> None:
        self.made: list[Span] = []
        labels = {"traceparent": label} if label else {}
        self.spans = TaskSpans(self.made.append, lambda *_: labels, ratio, Random(1))

    def move(self, state: TaskState, at: float, reason: Reason = Reason.NONE) -> None:
        source, message = Source.AGENT, "exited with code 1" if reason else ""
        fact = TaskMoved(F, T, AgentId("a"), state, source, reason, message)
        self.spans.happened(fact, int(at * S))

    @property
    def times(self) -> dict[str, tuple[float, float]]:
        return {each.name: (each.start_ns / S, each.end_ns / S) for each in self.made}


def test_a_submitted_task() -> None:
    traced = Traced()
    states = (TaskState.QUEUED, TaskState.STAGING, TaskState.STARTING, TaskState.RUNNING)
    for at, state in enumerate((*states, TaskState.FINISHED), 1):
        traced.move(state, at)
    traced.spans.acknowledged(F, T, 6 * S)
    traced.spans.acknowledged(F, T, 7 * S)
    assert traced.times == {
        "queued": (1, 2),
        "placed": (2, 3),
        "launched": (3, 4),
        "running": (4, 5),
        "ended": (5, 6),
        "task": (1, 6),
    }
    root = traced.made[-1]
    assert root.parent_id == 0
    assert {each.parent_id for each in traced.made[:-1]} == {root.span_id}
    assert len({each.trace_id for each in traced.made}) == 1
    assert root.attributes == {
        "croupier.framework_id": "f",
        "croupier.task_id": "t",
        "croupier.agent_id": "a",
        "croupier.state": "FINISHED",
    }
    assert not any(each.error for each in traced.made)


def test_a_task_on_an_offer_begins_with_the_offer() -> None:
    traced = Traced()
    traced.move(TaskState.STAGING, 5)
    traced.spans.happened(OfferEnded(OfferId("o1"), F, "accepted", 2.0, ""), 5 * S)
    traced.move(TaskState.RUNNING, 6)
    traced.spans.happened(OfferEnded(OfferId("o2"), F, "accepted", 2.0, ""), 7 * S)
    traced.move(TaskState.FAILED, 8, Reason.COMMAND_EXECUTOR_FAILED)
    traced.spans.acknowledged(F, T, 9 * S)
    whole = {name: traced.times[name] for name in ("offered", "task")}
    assert whole == {"offered": (3, 5), "task": (3, 9)}
    assert traced.made[-1].attributes["croupier.offer_id"] == "o1"
    assert traced.made[-1].attributes["croupier.reason"] == "COMMAND_EXECUTOR_FAILED"
    assert {each.name: each.error for each in traced.made if each.error} == {
        "ended": "exited with code 1",
        "task": "exited with code 1",
    }


def test_a_task_with_a_trace_context_is_a_child_of_it() -> None:
    traced = Traced(PARENT, ratio=0)
    traced.move(TaskState.QUEUED, 1)
    traced.spans.happened(FrameworkLeft(F, "removed", ""), 2 * S)
    root = traced.made[-1]
    assert (root.name, root.is_remote) == ("task", True)
    assert root.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert root.parent_id == 0xB7AD6B7169203331


def test_what_is_not_sampled_or_not_seen_makes_no_span() -> None:
    for traced in (Traced(PARENT[:-1] + "0"), Traced(ratio=0)):
        traced.move(TaskState.QUEUED, 1)
        traced.spans.acknowledged(F, T, S)
        assert traced.made == []
    late = Traced()
    late.move(TaskState.RUNNING, 1)
    late.spans.acknowledged(F, T, S)
    late.move(TaskState.QUEUED, 2)
    late.spans.clear()
    late.spans.acknowledged(F, T, S)
    assert late.made == []


def test_trace_contexts() -> None:
    assert parse_context(PARENT) is not None
    assert parse_context("cc" + PARENT[2:] + "-more") is not None
    for text in (
        "",
        "x",
        "ff" + PARENT[2:],
        PARENT + "-more",
        PARENT.upper(),
        "00-" + "0" * 32 + PARENT[35:],
        PARENT[:36] + "0" * 16 + "-01",
    ):
        assert parse_context(text) is None, text
