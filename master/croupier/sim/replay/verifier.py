"""Verification: the core decides all events again, and must decide the same, byte for byte."""

from __future__ import annotations

from croupier.master.allocator import Allocator, policies
from croupier.master.core.records import Registry
from croupier.master.core.state_recovery import recover_state
from croupier.master.core.step import step
from croupier.master.eventlog.digest import Digest, outcomes_of
from croupier.master.eventlog.lines import Head, Line, LogEntry
from croupier.model.errors import CroupierError
from croupier.sim.replay.reader import BadLog, LogPlace

_SHOWN = 5


class Diverged(CroupierError):
    """The core decided differently from the log."""


class Verifier:
    """A master's core that decides the events of a log again.

    Attributes:
        state: the state of the core.
        events: the number of events decided.
    """

    def __init__(self, head: Head) -> None:
        """Begin where the master began.

        Raises:
            BadLog: if a master cannot begin from this head.
        """
        assert head.part == 1
        try:
            for settings in head.roles.values():
                settings.check()
            allocator = Allocator(policies.make(head.policy, head.seed), head.rules, head.roles)
            registry = head.registry or Registry()
            self.state = recover_state(registry, head.master_id, head.settings, allocator, head.at)
        except Exception as error:
            raise BadLog(f"no master can begin from this head: {_text_of(error)}") from None
        self.events = 0
        self._head = head
        self._digest = Digest()

    @property
    def digest(self) -> str:
        """The digest of all decisions so far."""
        return str(self._digest)

    def take(self, place: LogPlace, line: Line) -> None:
        """Decide the event of one more line.

        Raises:
            Diverged: if the decision differs from the recorded one.
            BadLog: if the core fails on the event.
        """
        if isinstance(line, Head):
            self._check(place, line)
        elif isinstance(line, LogEntry):
            self._decide(place, line)

    def _check(self, place: LogPlace, head: Head) -> None:
        if head.part > 1 and (head.events, head.digest) != (self.events, self.digest):
            raise Diverged(
                f"{place}: the head expects {head.events} events before it with the digest"
                f" {head.digest}; there were {self.events} with {self.digest}"
            )

    def _decide(self, place: LogPlace, entry: LogEntry) -> None:
        try:
            effects = step(self.state, entry.event, entry.at)
        except Exception as error:
            kind = type(entry.event).__name__
            raise BadLog(f"{place}: the core fails on this {kind}: {_text_of(error)}") from error
        self.events += 1
        decided = self._digest.add(effects) if effects else ""
        if decided == entry.digest:
            return
        did = tuple(outcomes_of(effects))
        raise Diverged(
            f"{place}: event {self.events}, {type(entry.event).__name__}, was decided differently"
            f" from the log\n  recorded {_joined(entry.outcomes)}\n  now      {_joined(did)}"
            f"\n  the log was written by version {self._head.version}"
        )


def _joined(did: tuple[tuple[str, ...], ...]) -> str:
    shown = ", ".join(" ".join(outcome) for outcome in did[:_SHOWN]) or "no summarized effect"
    return shown + (f" and {len(did) - _SHOWN} more" if len(did) > _SHOWN else "")


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
