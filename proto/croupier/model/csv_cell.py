"""Cells of CSV files that people open in a spreadsheet."""

from __future__ import annotations

from typing import Final

# As OWASP lists them; at the end, the wide forms of the first four.
_BEGINS: Final = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def csv_cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula: such a text gets an apostrophe first.

    Text that users chose, such as the name of a framework, would be evaluated otherwise, quoted or
    not. Numbers stay.
    """
    if not (isinstance(value, str) and value.startswith(_BEGINS)):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
