"""No text of users is a formula of a spreadsheet."""

from __future__ import annotations

import pytest

from croupier.model.csv_cell import csv_cell


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "\r=1", "-1+2", "\N{FULLWIDTH EQUALS SIGN}1", "-"],
)
def test_a_formula_becomes_text(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize(
    "value", ["", "ads", "a=1", "'x", "-1.5", "+3", "0.000000", -1, -2.5, None]
)
def test_other_text_and_numbers_stay(value: object) -> None:
    assert csv_cell(value) == value
