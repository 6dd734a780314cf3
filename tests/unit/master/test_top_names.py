"""Which names get series of their own, and that they do not flap."""

from __future__ import annotations

from croupier.master.metrics.series import MIN_STAY_S, RANK_AGAIN_S, Score, TopNames


def choose(names: TopNames, now: float, **amounts: float) -> set[str]:
    names.update(lambda: {name: Score(amount) for name, amount in amounts.items()}, now)
    return set(names.names)


def test_the_highest_scores_are_chosen() -> None:
    assert choose(TopNames(2), 0, a=1, b=3, c=2) == {"b", "c"}


def test_pinned_names_come_first() -> None:
    names = TopNames(2)
    names.update(lambda: {"a": Score(0.0, is_pinned=True), "b": Score(2), "c": Score(3)}, 0)
    assert names.names == ("a", "c")


def test_there_is_none_that_is_called_other() -> None:
    assert choose(TopNames(2), 0, other=9, a=1) == {"a"}


def test_a_new_name_comes_in_at_once_while_there_is_room() -> None:
    names = TopNames(3)
    assert choose(names, 0, a=1) == {"a"}
    assert choose(names, 1, a=1, b=1) == {"a", "b"}


def test_a_name_stays_for_some_time() -> None:
    names = TopNames(1)
    assert choose(names, 0, a=1, b=0) == {"a"}
    assert choose(names, MIN_STAY_S - 1, a=0, b=1) == {"a"}
    assert choose(names, MIN_STAY_S - 1 + RANK_AGAIN_S, a=0, b=1) == {"b"}


def test_about_equal_names_do_not_alternate() -> None:
    names = TopNames(1)
    choose(names, 0, a=1, b=0)
    for time in range(1, 50):
        now = MIN_STAY_S * 2 + time * RANK_AGAIN_S
        assert choose(names, now, a=1 + time % 2, b=1.4) == {"a"}
    assert choose(names, now + RANK_AGAIN_S, a=1, b=1.6) == {"b"}


def test_names_that_are_gone_leave() -> None:
    names = TopNames(1)
    choose(names, 0, a=1)
    assert choose(names, RANK_AGAIN_S, b=1) == {"b"}


def test_scores_are_computed_when_due_only() -> None:
    names = TopNames(1)
    choose(names, 0, a=1)
    names.update(dict, RANK_AGAIN_S - 1)
    assert names.names == ("a",)
