"""Parties that leave offers unanswered come last for some time."""

from __future__ import annotations

from croupier.master.allocator.back_off import FORGET_S, GAP_S, BackOff, party_of
from croupier.model.ids import AgentId, FrameworkId
from tests.harness.allocator_fixture import AllocatorFixture, want

P, Q = party_of(FrameworkId("f"), ""), party_of(FrameworkId("g"), "client/q")
A, B = AgentId("a"), AgentId("b")


def strike(back_off: BackOff, now: float) -> float | None:
    return back_off.ended(P, A, now - 10.0, now)


def test_the_frameworks_of_a_principal_are_one_party() -> None:
    assert party_of(FrameworkId("f"), "client/q") == Q
    assert party_of(FrameworkId("client/q"), "") != Q


def test_a_party_that_keeps_an_agent_for_long_backs_off() -> None:
    back_off = BackOff()
    assert back_off.ended(P, A, 0.0, 4.9) is None
    assert back_off.ended(Q, A, 0.0, 5.0) == 10.0
    assert back_off.active(14.9) == {Q: 15.0}
    assert back_off.active(15.0) == {}


def test_offers_in_a_row_count_together() -> None:
    back_off = BackOff()
    assert back_off.row_since(P, A, 0.0) == 0.0
    back_off.ended(P, A, 0.0, 4.0)
    assert back_off.row_since(P, A, 4.5) == 0.0
    assert back_off.row_since(P, B, 4.5) == 4.5
    assert back_off.row_since(Q, A, 4.5) == 4.5
    assert back_off.ended(P, A, 0.0, 6.0) == 10.0


def test_a_gap_or_a_launch_ends_a_row() -> None:
    back_off = BackOff()
    back_off.ended(P, A, 0.0, 4.0)
    assert back_off.row_since(P, A, 4.0 + GAP_S) == 4.0 + GAP_S
    back_off.answered(P, A)
    assert back_off.row_since(P, A, 4.0) == 4.0


def test_old_rows_are_dropped() -> None:
    back_off = BackOff()
    for number in range(100):
        back_off.ended(P, AgentId(f"a{number}"), float(number), number + 0.1)
    assert len(back_off._rows) == 1


def test_each_back_off_is_twice_as_long_as_the_one_before() -> None:
    back_off, now, seconds = BackOff(), 0.0, []
    for _ in range(8):
        found = strike(back_off, now)
        assert found is not None
        seconds.append(found)
        now += found
    assert seconds == [10, 20, 40, 80, 160, 320, 320, 320]


def test_offers_that_end_during_a_back_off_do_not_prolong_it() -> None:
    back_off = BackOff()
    assert strike(back_off, 0.0) == 10.0
    assert strike(back_off, 9.9) is None
    assert back_off.active(9.9) == {P: 10.0}


def test_one_step_is_forgotten_in_some_minutes() -> None:
    back_off = BackOff()
    strike(back_off, 0.0)
    strike(back_off, 10.0)
    assert strike(back_off, 30.0 + FORGET_S) == 20.0
    assert strike(back_off, 5000.0) == 10.0


def test_forgotten_parties_are_dropped() -> None:
    back_off = BackOff()
    for number in range(100):
        party = party_of(FrameworkId(f"f{number}"), "")
        back_off.ended(party, A, number * FORGET_S - 10.0, number * FORGET_S)
    assert len(back_off._strikes) < 5
    back_off.forget(party)
    assert not back_off.active(99 * FORGET_S)


def test_a_removed_framework_without_owner_is_forgotten() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    fixture.allocator.answers.unused(FrameworkId("f"), A, -10.0, 0.0)
    assert fixture.allocator.back_off.active(0.0)
    fixture.allocator.remove_framework(FrameworkId("f"))
    assert not fixture.allocator.back_off.active(0.0)


def test_a_look_ahead_changes_nothing() -> None:
    """Replay makes no reads, and must decide the same."""
    back_off = BackOff()
    strike(back_off, 0.0)
    assert not back_off.active(99.0)
    assert back_off.active(1.0) == {P: 10.0}
