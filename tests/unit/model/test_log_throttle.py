"""A repeated line is written at intervals, other lines at once."""

from __future__ import annotations

from croupier.model.log_throttle import MAX_KEYS, LogThrottle


def test_repeated_line_is_due_at_intervals() -> None:
    throttle = LogThrottle(30.0)
    due = [at for at in range(100) if throttle.is_due("gone", float(at))]
    assert due == [0, 30, 60, 90]
    assert throttle.take_suppressed() == 96
    assert throttle.take_suppressed() == 0


def test_each_key_has_its_own_time() -> None:
    throttle = LogThrottle(30.0)
    assert throttle.is_due(("gone", "a"), 0.0)
    assert throttle.is_due(("gone", "b"), 1.0)
    assert not throttle.is_due(("gone", "a"), 2.0)


def test_line_is_due_at_once_after_forget() -> None:
    throttle = LogThrottle(30.0)
    assert throttle.is_due("gone", 0.0)
    throttle.forget()
    assert throttle.is_due("gone", 1.0)


def test_number_of_keys_is_bounded() -> None:
    throttle = LogThrottle(30.0)
    for number in range(MAX_KEYS):
        assert throttle.is_due(number, 0.0)
    assert throttle.is_due("one more", 0.0)
    assert throttle.is_due(0, 0.0), "all but the latest key was forgotten"
