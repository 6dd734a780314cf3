"""`croupier simulate vectors FILE`."""

from __future__ import annotations

from pathlib import Path

from croupier.lab.vectors.check import CheckedVector, check_text
from croupier.lab.vectors.document import Malformed
from croupier.model.errors import InvalidRequest

_MAX_LINES = 20


def check_file(path: Path) -> int:
    """Print each failure and, last, `N passed, N failed`; return the exit code.

    Raises:
        InvalidRequest: if the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        print(f"{path}: not a text in UTF-8")
        return _print_counts(0, 1)
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror or error}") from None
    passed = failed = 0
    try:
        for result in check_text(text):
            passed, failed = passed + result.passed, failed + (not result.passed)
            _print(result)
    except Malformed as error:
        print(f"{path}: {error}")
        return _print_counts(0, 1)
    return _print_counts(passed, failed)


def _print(result: CheckedVector) -> None:
    for mismatch in result.failures[:_MAX_LINES]:
        where = f" {mismatch.where}" if mismatch.where else ""
        print(f"FAIL {result.name}:{where}")
        print(f"     expected {mismatch.expected}")
        print(f"     got      {mismatch.got}", flush=True)
    if len(result.failures) > _MAX_LINES:
        print(f"     and {len(result.failures) - _MAX_LINES} more")


def _print_counts(passed: int, failed: int) -> int:
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
