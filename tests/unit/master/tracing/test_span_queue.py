"""The queue of spans is bounded, and its thread survives a collector that fails."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from croupier.master.tracing import span_queue
from croupier.master.tracing.span import Span
from croupier.master.tracing.span_queue import BATCH, SpanQueue

SPAN = Span("task", 1, 2, 0, 3, 4)


def test_all_spans_are_sent_at_the_end() -> None:
    sizes: list[int] = []

    def export(spans: Sequence[Span]) -> bool:
        sizes.append(len(spans))
        return True

    queue = SpanQueue(export)
    queue.start()
    for _ in range(BATCH + 1):
        queue.put(SPAN)
    queue.stop()
    assert sum(sizes) == BATCH + 1
    assert max(sizes) <= BATCH
    assert (queue.exported, queue.failed, queue.dropped) == (BATCH + 1, 0, 0)


def test_a_collector_that_hangs_fills_the_queue_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_queue, "MAX_SPANS", 10)
    monkeypatch.setattr(span_queue, "END_S", 0.01)
    went_on = threading.Event()
    queue = SpanQueue(lambda _: went_on.wait(30))
    for _ in range(25):
        queue.put(SPAN)
    assert queue.dropped == 15
    queue.start()
    queue.stop()
    went_on.set()


def test_spans_that_the_collector_does_not_take_are_counted() -> None:
    sizes: list[int] = []

    def export(spans: Sequence[Span]) -> bool:
        sizes.append(len(spans))
        if len(sizes) == 2:
            raise RuntimeError("no route")
        return False

    queue = SpanQueue(export)
    for _ in range(BATCH + 1):
        queue.put(SPAN)
    queue.start()
    queue.stop()
    assert (queue.exported, queue.failed) == (0, BATCH + 1)
