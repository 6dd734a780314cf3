"""The result of one check, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from croupier.cli.terminal import View


class CheckOutcome(Enum):
    """Result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `croupier doctor`.

    Attributes:
        advice: what to do; empty if nothing.
    """

    outcome: CheckOutcome
    check: str
    text: str
    advice: str = ""

    @property
    def view(self) -> View:
        """The finding for programs."""
        return {
            "outcome": self.outcome.value,
            "check": self.check,
            "text": self.text,
            "advice": self.advice,
        }

    @property
    def line(self) -> str:
        """The finding for people."""
        then = f" -> {self.advice}" if self.advice else ""
        return f"{self.outcome.value:4}  {self.check:12} {self.text}{then}"


def ok(check: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(CheckOutcome.OK, check, text)


def warn(check: str, text: str, advice: str = "") -> Finding:
    """Return a finding that will need an action."""
    return Finding(CheckOutcome.WARN, check, text, advice)


def fail(check: str, text: str, advice: str = "") -> Finding:
    """Return a finding that prevents work."""
    return Finding(CheckOutcome.FAIL, check, text, advice)
