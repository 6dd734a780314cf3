"""The usage ledger: exact sums over time, in hours and days."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.master.core import usage_buckets
from croupier.master.core.usage import MAX_GAP_MS, UsageLedger
from croupier.master.core.usage_buckets import (
    CLUSTER,
    DAY_MS,
    HOUR_MS,
    MAX_DAYS,
    MAX_HOURS,
    OTHERS,
    Account,
    Sums,
    UsageBucket,
    dominant_ms,
)
from croupier.master.core.usage_records import (
    UsageRecord,
    UsageRow,
    deletions,
    history_of,
    record_of,
    usage_key,
)
from croupier.model.ids import Role

# 2026-11-27 12:00 UTC.
NOON = 1_795_780_800_000
A = Account(Role("ads"), "train")
B = Account(Role("ads/prod"), "serve", "ann", "team-1")


def ledger_at(now: float = 0.0) -> UsageLedger:
    """Return a ledger of a cluster with 4 cpus whose first step is closed at noon."""
    ledger = UsageLedger(now)
    ledger.set_capacity({"cpus": 4_000})
    ledger.close(NOON)
    return ledger


def check(ledger: UsageLedger) -> None:
    """Check all invariants of the sums."""
    for bucket in ledger.history:
        bucket.check()


def test_an_amount_counts_from_its_beginning_to_its_end() -> None:
    ledger = ledger_at()
    ledger.now_ms = 10_000
    ledger.use(A, {"cpus": 2_000, "mem": 5})
    ledger.now_ms = 25_500
    ledger.use(A, {"cpus": 2_000, "mem": 5}, -1)
    ledger.now_ms = 60_000
    closed = ledger.close(NOON + 60_000)

    (bucket,) = ledger.history
    assert closed.changed == [(bucket, {A, CLUSTER})]
    assert bucket.accounts == {A: Sums({"cpus": 2_000 * 15_500, "mem": 5 * 15_500})}
    assert bucket.capacity == {"cpus": 4_000 * 60_000}
    assert bucket.counted_ms == 60_000
    assert ledger.accounts() == [], "an account without resources is forgotten"
    check(ledger)


def test_an_amount_that_goes_on_is_counted_in_each_step_once() -> None:
    ledger = ledger_at()
    ledger.use(A, {"cpus": 1_000})
    for minute in (1, 2, 3):
        ledger.now_ms = 60_000 * minute
        ledger.close(NOON + 60_000 * minute)
    (bucket,) = ledger.history
    assert bucket.accounts[A].used == {"cpus": 1_000 * 180_000}
    assert ledger.amounts(A) == Sums({"cpus": 1_000})


def test_used_held_and_offered_are_told_apart() -> None:
    ledger = ledger_at()
    ledger.use(A, {"cpus": 1_000})
    ledger.hold(A, {"cpus": 2_000})
    ledger.offer(A, {"cpus": 3_000})
    ledger.now_ms = 1_000
    ledger.close(NOON + 1_000)
    (bucket,) = ledger.history
    assert bucket.accounts[A] == Sums({"cpus": 1_000_000}, {"cpus": 2_000_000}, {"cpus": 3_000_000})


def test_a_role_includes_all_roles_below_it() -> None:
    ledger = ledger_at()
    ledger.use(A, {"cpus": 1_000})
    ledger.use(B, {"cpus": 500})
    ledger.now_ms = 2_000
    ledger.close(NOON + 2_000)
    (bucket,) = ledger.history
    assert bucket.by_role == {"ads": {"cpus": 3_000_000}, "ads/prod": {"cpus": 1_000_000}}
    assert bucket.capacity == {"cpus": 8_000_000}
    assert (bucket.start_ms, bucket.end_ms, bucket.counted_ms) == (NOON, NOON + HOUR_MS, 2_000)
    assert dominant_ms(bucket.by_role[Role("ads")], bucket.capacity, bucket.counted_ms) == 750


def test_the_dominant_share_is_the_largest_of_all_resources() -> None:
    used, capacity = {"cpus": 10, "mem": 300, "unknown": 7}, {"cpus": 100, "mem": 400, "gpus": 1}
    assert dominant_ms(used, capacity, 60_000) == 45_000
    assert dominant_ms({}, capacity, 60_000) == 0


def test_a_step_belongs_to_the_hour_of_its_middle() -> None:
    ledger = UsageLedger()
    ledger.use(A, {"cpus": 1_000})
    ledger.now_ms = 60_000
    ledger.close(NOON + 29_000)
    ledger.now_ms = 120_000
    ledger.close(NOON + 89_000)
    assert [bucket.start_ms for bucket in ledger.history] == [NOON - HOUR_MS, NOON]


def test_a_jump_of_the_wall_clock_changes_no_length_and_no_closed_step() -> None:
    ledger = ledger_at()
    ledger.use(A, {"cpus": 1_000})
    ledger.now_ms = 60_000
    ledger.close(NOON + 60_000)
    ledger.now_ms = 120_000
    ledger.close(NOON + 50 * HOUR_MS)
    ledger.now_ms = 180_000
    ledger.close(NOON + 180_000)
    first, second = ledger.history
    assert first.accounts[A].used == {"cpus": 1_000 * 120_000}
    assert second.start_ms == NOON + 49 * HOUR_MS
    assert second.accounts[A].used == {"cpus": 1_000 * 60_000}


def test_old_hours_become_days_and_old_days_are_forgotten() -> None:
    ledger = ledger_at()
    ledger.use(A, {"cpus": 1})
    hours = (MAX_DAYS + 10) * 24
    forgotten: list[UsageBucket] = []
    for number in range(1, hours + 1):
        ledger.now_ms = HOUR_MS * number
        forgotten += ledger.close(NOON + HOUR_MS * number).forgotten
    check(ledger)
    assert len(ledger.history.hours) == MAX_HOURS
    assert MAX_DAYS <= len(ledger.history.days) <= MAX_DAYS + 1
    kept = sum(each.by_role[A.role]["cpus"] for each in ledger.history)
    lost = [each for each in forgotten if each.length_ms == DAY_MS]
    assert kept + sum(each.by_role[A.role]["cpus"] for each in lost) == hours * HOUR_MS
    starts = [each.start_ms for each in ledger.history]
    assert starts == sorted(starts)


def test_a_successor_counts_the_time_since_the_last_step_once() -> None:
    ledger = ledger_at()
    ledger.use(A, {"cpus": 1_000})
    ledger.now_ms = 60_000
    ledger.close(NOON + 60_000)

    # It begins 40 s after the last step, on a monotonic clock of its own.
    successor = UsageLedger(7_000.0, ledger.history, ledger.closed_ms)
    successor.use(A, {"cpus": 1_000})
    successor.set_capacity({"cpus": 4_000})
    successor.note_found()
    successor.now_ms = 7_005_000
    successor.use(B, {"cpus": 500})
    successor.now_ms = 7_020_000
    successor.close(NOON + 120_000)

    (bucket,) = successor.history
    assert bucket.accounts[A].used == {"cpus": 1_000 * 120_000}
    assert bucket.accounts[B].used == {"cpus": 500 * 15_000}
    assert bucket.capacity == {"cpus": 4_000 * 120_000}
    assert bucket.counted_ms == 120_000


@pytest.mark.parametrize(
    ("away_ms", "counted_ms"), [(-5_000, 0), (20_000, 20_000), (10 * MAX_GAP_MS, MAX_GAP_MS)]
)
def test_the_time_without_a_master_is_bounded(away_ms: int, counted_ms: int) -> None:
    ledger = UsageLedger(closed_ms=NOON)
    ledger.use(A, {"cpus": 1_000})
    ledger.note_found()
    ledger.now_ms = 1_000
    ledger.close(NOON + away_ms + 1_000)
    (bucket,) = ledger.history
    assert bucket.accounts[A].used == {"cpus": 1_000 * (counted_ms + 1_000)}


def test_too_many_accounts_are_added_together_by_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_buckets, "MAX_ACCOUNTS", 2)
    bucket = UsageBucket(NOON, HOUR_MS)
    for number in range(5):
        bucket.add(Account(Role("ads"), f"f{number}"), Sums({"cpus": 1}))
    assert bucket.accounts[Account(Role("ads"), OTHERS)].used == {"cpus": 3}
    for number in range(5):
        bucket.add(Account(Role(f"role-{number}"), "f"), Sums({"cpus": 1}))
    assert bucket.accounts[Account(Role(OTHERS), OTHERS)].used == {"cpus": 4}
    bucket.check()


@st.composite
def _changes(draw: st.DrawFn) -> list[tuple[int, str, Account, int]]:
    """Return times in milliseconds, in order, with an account that gets an amount, or a step."""
    kinds = st.sampled_from(["use", "hold", "offer", "close"])
    events = st.tuples(
        st.integers(0, 3_000_000), kinds, st.sampled_from([A, B]), st.integers(0, 5_000)
    )
    return sorted(draw(st.lists(events, max_size=30)), key=lambda event: event[0])


@settings(deadline=None)
@given(_changes(), st.booleans())
def test_sums_equal_those_of_each_millisecond_span(
    changes: list[tuple[int, str, Account, int]], is_clock_wrong: bool
) -> None:
    ledger = ledger_at()
    expected: dict[tuple[str, Account], int] = defaultdict(int)
    now: dict[tuple[str, Account], int] = defaultdict(int)
    last_ms = 0
    for at_ms, kind, account, milli in [*changes, (3_000_001, "close", A, 0)]:
        for key, amount in now.items():
            expected[key] += amount * (at_ms - last_ms)
        last_ms = at_ms
        ledger.now_ms = at_ms
        if kind == "close":
            ledger.close(NOON + at_ms * (3 if is_clock_wrong else 1))
            check(ledger)
            continue
        change = milli - now[kind, account]
        getattr(ledger, kind)(account, {"cpus": abs(change)}, 1 if change > 0 else -1)
        now[kind, account] = milli
    found: dict[tuple[str, Account], int] = defaultdict(int)
    for bucket in ledger.history:
        for account, sums in bucket.accounts.items():
            for kind, amounts in zip(
                ("use", "hold", "offer"), (sums.used, sums.held, sums.offered), strict=True
            ):
                found[kind, account] += amounts.get("cpus", 0)
    assert {key: milli for key, milli in found.items() if milli} == {
        key: milli for key, milli in expected.items() if milli
    }
    assert sum(bucket.counted_ms for bucket in ledger.history) == last_ms
    for bucket in ledger.history:
        assert bucket.capacity == {"cpus": 4_000 * bucket.counted_ms} or not bucket.counted_ms


def test_a_full_bucket_is_the_same_after_it_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else accounts that were read last would be in the sum of others, and in their own records."""
    monkeypatch.setattr(usage_buckets, "MAX_ACCOUNTS", 2)
    bucket = UsageBucket(NOON, HOUR_MS)
    for name in ("a", "b", "c", "d"):
        bucket.add(Account(Role("ads"), name), Sums({"cpus": 1}))
    records = [record_of(bucket, account, NOON) for account in bucket.accounts]
    records.sort(key=lambda record: record.account)

    history, _ = history_of(records)
    (read,) = history
    assert read.accounts == bucket.accounts
    read.check()


def test_a_clock_that_is_set_to_its_beginning_counts_in_its_first_hour() -> None:
    ledger = ledger_at()
    ledger.use(A, {"cpus": 1_000})
    ledger.now_ms = 60_000
    ((bucket, changed),) = ledger.close(0).changed
    assert changed == {A, CLUSTER}
    assert record_of(bucket, A, 0).start_ms == 0


def test_a_clock_set_back_to_a_day_that_is_dropped_leaves_what_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage_buckets, "MAX_HOURS", 1)
    monkeypatch.setattr(usage_buckets, "MAX_DAYS", 1)
    ledger = UsageLedger()
    ledger.use(A, {"cpus": 1_000})
    stored: dict[str, UsageRow] = {}
    for minute, day in enumerate((0, 2, 4, 0, 6), 1):
        ledger.now_ms = 60_000 * minute
        wall_ms = NOON + day * DAY_MS
        closed = ledger.close(wall_ms)
        for bucket, accounts in closed.changed:
            records = [record_of(bucket, account, wall_ms) for account in accounts]
            stored.update((usage_key(record), record) for record in records)
        for bucket in closed.forgotten:
            for row in deletions(bucket):
                stored.pop(usage_key(row), None)
        history, _ = history_of(row for row in stored.values() if isinstance(row, UsageRecord))
        assert list(history) == list(ledger.history)
