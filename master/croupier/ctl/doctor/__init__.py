"""Checks of the client's view of a cluster: credentials, certificates, masters, agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `croupier doctor`.

    Attributes:
        advice: what to do; empty if nothing.
    """

    outcome: Literal["ok", "warn", "fail"]
    check: str
    text: str
    advice: str = ""

    @property
    def line(self) -> str:
        """The finding for people."""
        then = f" -> {self.advice}" if self.advice else ""
        return f"{self.outcome:4}  {self.check:12} {self.text}{then}"


def ok(check: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding("ok", check, text)


def warn(check: str, text: str, advice: str = "") -> Finding:
    """Return a finding that will need an action."""
    return Finding("warn", check, text, advice)


def fail(check: str, text: str, advice: str = "") -> Finding:
    """Return a finding that prevents work."""
    return Finding("fail", check, text, advice)
