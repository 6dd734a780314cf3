"""The soak distinguishes memory that fills a history from memory that leaks."""

from __future__ import annotations

import pytest

from tests.bench.soak import ENDED_TASKS, MASTER_RSS, MB, RSS, Noise, Point, Series, Verdict

A_SECOND = 60


def series(noise: Noise, bytes_a_task: float, minutes: float, ended: int = 0) -> Series:
    """Return samples of 80 MB of memory that grows with each task, one a second."""
    return Series(
        noise,
        [
            Point(at, 80 * MB + bytes_a_task * A_SECOND * at, ended + A_SECOND * at)
            for at in range(int(60 * minutes))
        ],
    )


@pytest.mark.parametrize(
    ("bytes_a_task", "minutes", "ended", "verdict"),
    [
        (0, 3, 0, Verdict.BOUNDED),
        (2_000, 3, 0, Verdict.FILLS),
        (8_000, 3, 0, Verdict.GROWS),
        (2_000, 10, ENDED_TASKS.most, Verdict.GROWS),
        (300, 30, ENDED_TASKS.most, Verdict.FILLS),
    ],
)
def test_memory_of_histories_is_not_a_leak(
    bytes_a_task: float, minutes: float, ended: int, verdict: Verdict
) -> None:
    assert series(MASTER_RSS, bytes_a_task, minutes, ended).verdict() is verdict


def test_memory_without_history_may_not_grow() -> None:
    assert series(RSS, 2_000, 3).verdict() is Verdict.GROWS
