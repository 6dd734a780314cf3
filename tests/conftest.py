"""Options and the summary of guarded checks for all tests."""

from __future__ import annotations

import pytest

import croupier.net  # noqa: F401 - before gRPC, which it makes silent
from tests.harness.guards import COUNTS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="accept what scenarios print now")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many checks of each guarded property met their condition."""
    if COUNTS:
        terminalreporter.section("guarded checks")
        width = max(map(len, COUNTS))
        for name, count in COUNTS.items():
            terminalreporter.write_line(f"{name.ljust(width)} {count:>8}")
