"""`croupier simulate vectors FILE`."""

from __future__ import annotations

from pathlib import Path

from croupier.model.errors import InvalidRequest
from croupier.sim.vectors.check import Verdict, check_text
from croupier.sim.vectors.document import Malformed

_MAX_LINES = 20


def check_file(path: Path) -> int:
    """Print each failure and, last, `N passed, N failed`; the exit code.

    Raises:
        InvalidRequest: if the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        print(f"{path}: not a text in UTF-8")
        return _told(0, 1)
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror or error}") from None
    passed = failed = 0
    try:
        for verdict in check_text(text):
            passed, failed = passed + verdict.passed, failed + (not verdict.passed)
            _print(verdict)
    except Malformed as error:
        print(f"{path}: {error}")
        return _told(0, 1)
    return _told(passed, failed)


def _print(verdict: Verdict) -> None:
    for mismatch in verdict.failures[:_MAX_LINES]:
        where = f" {mismatch.where}" if mismatch.where else ""
        print(f"FAIL {verdict.name}:{where}")
        print(f"     expected {mismatch.expected}")
        print(f"     got      {mismatch.got}", flush=True)
    if len(verdict.failures) > _MAX_LINES:
        print(f"     and {len(verdict.failures) - _MAX_LINES} more")


def _told(passed: int, failed: int) -> int:
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
