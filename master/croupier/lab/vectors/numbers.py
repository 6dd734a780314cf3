"""Numbers as vectors write them: integers, decimals, or fractions such as "25/6"; exactly."""

from __future__ import annotations

import re
from fractions import Fraction

_TEXT = re.compile(r"[+-]?\d{1,60}(\.\d{1,60})?(/\d{1,60})?\Z", re.ASCII)
_DECIMAL = re.compile(r"[+-]?\d{1,60}(\.\d{1,60})?([eE][+-]?\d{1,2})?\Z", re.ASCII)
_MAX_SHOWN = 40


class Unreadable(ValueError):
    """A vector is against the schema; the message says how."""


def read_decimal(text: str) -> Fraction:
    """Read a JSON number with a point or an exponent.

    Raises:
        Unreadable: if it has over 60 digits or an exponent beyond 99.
    """
    if not _DECIMAL.match(text):
        raise Unreadable(f"number {shortened(text)} is out of range")
    return Fraction(text)


def read_integer(text: str) -> int:
    """Read a JSON number without a point.

    Raises:
        Unreadable: if it has over 60 digits.
    """
    if not _DECIMAL.match(text):
        raise Unreadable(f"number {shortened(text)} is out of range")
    return int(text)


def number(value: object, what: str) -> Fraction:
    """Return `value` as a Fraction; `what` names it in the error.

    Raises:
        Unreadable: if it is not a number.
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, str) and _TEXT.match(value):
        try:
            return Fraction(value)
        except (ValueError, ZeroDivisionError):
            pass
    raise Unreadable(f"{what} is {shortened(repr(value))}, not a number")


def not_negative(value: object, what: str) -> Fraction:
    """Return `value` as a Fraction that is 0 or more.

    Raises:
        Unreadable: if it is not.
    """
    found = number(value, what)
    if found < 0:
        raise Unreadable(f"{what} is {found}, which is below 0")
    return found


def positive(value: object, what: str) -> Fraction:
    """Return `value` as a Fraction above 0.

    Raises:
        Unreadable: if it is not.
    """
    found = number(value, what)
    if found <= 0:
        raise Unreadable(f"{what} is {found}, which is not above 0")
    return found


def count(value: object, what: str) -> int:
    """Return `value` as a whole number that is 0 or more.

    Raises:
        Unreadable: if it is not.
    """
    found = not_negative(value, what)
    if found.denominator != 1:
        raise Unreadable(f"{what} is {found}, not a whole number")
    return found.numerator


def shortened(text: str) -> str:
    """Return `text`, cut so that a line stays readable."""
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
