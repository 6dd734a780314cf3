"""The same is said once in a while, other things at once."""

from __future__ import annotations

from croupier.model.log_throttle import MAX_KEYS, Repeats


def test_the_same_is_said_once_in_a_while() -> None:
    repeats = Repeats(30.0)
    due = [at for at in range(100) if repeats.is_due("gone", float(at))]
    assert due == [0, 30, 60, 90]


def test_each_thing_has_its_own_time() -> None:
    repeats = Repeats(30.0)
    assert repeats.is_due(("gone", "a"), 0.0)
    assert repeats.is_due(("gone", "b"), 1.0)
    assert not repeats.is_due(("gone", "a"), 2.0)


def test_what_comes_after_it_was_over_is_news() -> None:
    repeats = Repeats(30.0)
    assert repeats.is_due("gone", 0.0)
    repeats.forget()
    assert repeats.is_due("gone", 1.0)


def test_what_is_remembered_is_bounded() -> None:
    repeats = Repeats(30.0)
    for number in range(MAX_KEYS):
        assert repeats.is_due(number, 0.0)
    assert repeats.is_due("one more", 0.0)
    assert repeats.is_due(0, 0.0), "all but the latest was forgotten"
