"""Times of schedules, on clocks that leap."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.apps.cron.core.schedule import ALIASES, Schedule, next_change
from croupier.model.errors import InvalidRequest
from tests.harness.effort import portion

ZONES = [
    "UTC",
    "Europe/Vienna",
    "America/New_York",
    "Australia/Lord_Howe",  # leaps by half an hour
    "Africa/Cairo",  # leaps at midnight
    "America/Santiago",  # leaps back to the day before
    "Asia/Kathmandu",
]
DAY = 86_400
YEAR = 365 * DAY
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def wall_clock(instant: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(instant, zone).replace(tzinfo=None)


def shown(schedule: Schedule, start: str, count: int) -> list[str]:
    """Return the next times after `start`, by the clock of the zone."""
    instant, found = at(start), []
    for _ in range(count):
        following = schedule.next_after(instant)
        assert following is not None
        instant = following
        found.append(schedule.shown(instant))
    return found


def test_times_of_an_ordinary_week() -> None:
    assert shown(Schedule("30 2 * * 1-5"), "2026-01-02T12:00Z", 3) == [
        "2026-01-05 02:30:00 UTC",
        "2026-01-06 02:30:00 UTC",
        "2026-01-07 02:30:00 UTC",
    ]


def test_a_skipped_time_runs_once_after_the_leap() -> None:
    schedule = Schedule("30 2 * * *", "Europe/Vienna")
    assert shown(schedule, "2026-03-28T00:00Z", 3) == [
        "2026-03-28 02:30:00 CET",
        "2026-03-29 03:00:00 CEST",
        "2026-03-30 02:30:00 CEST",
    ]


def test_a_repeated_time_runs_once() -> None:
    schedule = Schedule("30 2 * * *", "Europe/Vienna")
    expected = ["2026-10-25 02:30:00 CEST", "2026-10-26 02:30:00 CET"]
    assert shown(schedule, "2026-10-24T12:00Z", 2) == expected


def test_a_restart_in_the_repeated_hour_does_not_find_its_times_again() -> None:
    # 01:30 for the second time; cronsim by itself would return a time before this.
    schedule = Schedule("45 1 * * *", "America/New_York")
    assert shown(schedule, "2026-11-01T06:30Z", 1) == ["2026-11-02 01:45:00 EST"]


def test_every_quarter_of_an_hour_follows_the_clock_that_is_shown() -> None:
    schedule = Schedule("*/15 2 * * *", "Europe/Vienna")
    assert shown(schedule, "2026-03-28T12:00Z", 1) == ["2026-03-30 02:00:00 CEST"]
    autumn = shown(schedule, "2026-10-24T12:00Z", 9)
    assert autumn[3:5] == ["2026-10-25 02:45:00 CEST", "2026-10-25 02:00:00 CET"]
    assert autumn[8] == "2026-10-26 02:00:00 CET"


def test_a_leap_of_half_an_hour() -> None:
    schedule = Schedule("*/15 2 * * *", "Australia/Lord_Howe")
    assert shown(schedule, "2026-04-04T12:00Z", 2) == [
        "2026-04-05 02:00:00 +1030",
        "2026-04-05 02:15:00 +1030",
    ]


def test_every_interval_counts_from_the_epoch() -> None:
    assert list(Schedule("@every 10m").times(1_000, 3_000)) == [1_200, 1_800, 2_400, 3_000]


@pytest.mark.parametrize("name", ALIASES)
def test_names_are_their_fields(name: str) -> None:
    assert Schedule(name).next_after(START) == Schedule(ALIASES[name]).next_after(START)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 4,6 *", "never fires"),
        ("0 0 31 2,4,6,9,11 *", "never fires"),
        ("61 * * * *", "'61' is not a minute"),
        ("0 24 * * *", "'24' is not a hour"),
        ("0 0 * * 8", "'8' is not a day of the week"),
        ("* * * *", "has 4 fields"),
        ("0 * * * * *", "has 6 fields"),
        ("", "has 0 fields"),
        ("@reboot", "is not a schedule"),
        ("@every", "is not a schedule"),
        ("@every 0s", "whole seconds"),
        ("@every 90ms", "whole seconds"),
        ("@every soon", "not a duration"),
    ],
)
def test_a_bad_schedule_is_refused(text: str, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        Schedule(text)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../etc/passwd", "/etc/passwd", "", "Europe"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="no time zone"):
        Schedule("@daily", name)


FIXED = [
    ("30 2 * * *", [(2, 30)]),
    ("0,45 1-3 * * *", [(h, m) for h in (1, 2, 3) for m in (0, 45)]),
]
FIXED += [("15 0 * * *", [(0, 15)]), ("59 23 * * *", [(23, 59)])]
SHOWN: dict[str, Callable[[datetime], bool]] = {
    "*/20 1-2 * * *": lambda w: w.hour in (1, 2) and w.minute % 20 == 0,
    "7 * * * *": lambda w: w.minute == 7,
    "*/5 0 * * *": lambda w: w.hour == 0 and w.minute % 5 == 0,
    "* 2 * * 0": lambda w: w.hour == 2 and w.isoweekday() == 7,
    "*/30 23 1 * *": lambda w: w.hour == 23 and w.minute % 30 == 0 and w.day == 1,
}


def around_leaps(zone: tzinfo) -> list[range]:
    """Return stretches of days, in minutes: around each leap, or the first ones of the year."""
    middles, instant = [], START
    while (change := next_change(instant, START + YEAR, zone)) is not None:
        middles.append(change)
        instant = change
    begins = [middle - middle % 60 - 2 * DAY for middle in middles or [START + 2 * DAY]]
    return [range(begin, begin + 4 * DAY, 60) for begin in begins]


@pytest.mark.parametrize("zone_name", ZONES)
@pytest.mark.parametrize("text", SHOWN)
def test_a_starred_schedule_has_the_minutes_at_which_the_clock_matches(
    text: str, zone_name: str
) -> None:
    schedule, matches = Schedule(text, zone_name), SHOWN[text]
    for minutes in around_leaps(schedule.zone):
        expected = [instant for instant in minutes if matches(wall_clock(instant, schedule.zone))]
        assert list(schedule.times(minutes[0] - 1, minutes[-1])) == expected


@pytest.mark.parametrize("zone_name", ZONES)
@pytest.mark.parametrize(("text", "moments"), FIXED)
def test_a_fixed_schedule_runs_once_for_each_of_its_times(
    text: str, moments: list[tuple[int, int]], zone_name: str
) -> None:
    schedule = Schedule(text, zone_name)
    for minutes in around_leaps(schedule.zone):
        times = list(schedule.times(minutes[0] - 1, minutes[-1]))
        walls = [wall_clock(each, schedule.zone) for each in times]
        for day in sorted({wall.date() for wall in walls})[1:-1]:
            of_day = [(wall.hour, wall.minute) for wall in walls if wall.date() == day]
            assert len(of_day) == len(set(of_day))
            # A skipped time runs at the end of the leap, perhaps together with others.
            extra = set(of_day) - set(moments)
            assert len(extra) <= 1
            assert extra or set(of_day) == set(moments) or len(of_day) < len(moments)
            assert len(of_day) >= 1


@settings(max_examples=portion(150), deadline=None)
@given(
    st.sampled_from([*SHOWN, *(text for text, _ in FIXED), "@every 17s", "0 12 29 2 *"]),
    st.sampled_from(ZONES),
    st.integers(START, START + YEAR),
    st.integers(1, 3 * DAY),
)
def test_where_one_begins_to_look_changes_no_time(
    text: str, zone_name: str, start: int, later: int
) -> None:
    schedule = Schedule(text, zone_name)
    first = schedule.next_after(start)
    assert first is not None
    assert first > start
    middle = start + later % (first - start)
    assert schedule.next_after(middle) == first
