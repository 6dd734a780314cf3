"""Linear equations in Fractions or floats, by elimination."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

Number = TypeVar("Number", Fraction, float)


def solve(matrix: Sequence[Sequence[Number]], right: Sequence[Number]) -> list[Number] | None:
    """Find x with matrix * x = right; None if the matrix is singular. O(n^3)."""
    size = len(right)
    rows: list[list[Number]] = [list(row) for row in matrix]
    for row, value in zip(rows, right, strict=True):
        row.append(value)
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        if rows[pivot][column] == 0:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = rows[column][column]
        rows[column] = [value / scale for value in rows[column]]
        for r in range(size):
            factor = rows[r][column]
            if r != column and factor:
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[column], strict=True)]
    return [row[size] for row in rows]
