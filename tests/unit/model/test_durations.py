"""Durations as people write them."""

from __future__ import annotations

import pytest

from croupier.model.durations import duration_text, parse_duration, span_text
from croupier.model.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1m.5s", 60.5),
        ("30s", 30.0),
        ("500ms", 0.5),
        ("1h30m", 5400.0),
        ("2d", 172800.0),
    ],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1 s", "1x", "nan", "inf", "1e9", "9" * 99, "1s!"]
)
def test_malformed_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (86_400, "1 d"),
        (273_700, "3 d 4 h"),
        (-1, "0 s"),
    ],
)
def test_durations_are_formatted(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (45.4, "45s"), (60, "1m"), (200, "3m20s"), (7500, "2h5m"), (273_600, "3d4h")],
)
def test_spans_in_columns_are_what_flags_read(seconds: float, text: str) -> None:
    assert span_text(seconds) == text
    assert parse_duration(text) == round(seconds)
