"""The core decides all of it again, and must decide the same, byte for byte."""

from __future__ import annotations

from croupier.master.allocator import Allocator, policies
from croupier.master.core.records import Registry
from croupier.master.core.state import State
from croupier.master.core.step import step
from croupier.master.eventlog.digest import Digest
from croupier.master.eventlog.lines import Entry, Head, Line
from croupier.master.eventlog.outcome import outcome
from croupier.model.errors import CroupierError
from croupier.sim.replay.reader import BadLog, Place

_SHOWN = 5


class Parted(CroupierError):
    """The core decided otherwise than it did when the log was written."""


class Exact:
    """A master's core, given again what it was given.

    Attributes:
        state: what it knows.
        events: how many events it was given.
    """

    def __init__(self, head: Head) -> None:
        """Begin where the master began.

        Raises:
            BadLog: if a master cannot begin so.
        """
        assert head.part == 1
        try:
            for settings in head.roles.values():
                settings.check()
            allocator = Allocator(policies.make(head.policy, head.seed), head.rules, head.roles)
            registry = head.registry or Registry()
            self.state = State.recovered(
                registry, head.master_id, head.settings, allocator, head.at
            )
        except Exception as error:
            raise BadLog(f"no master can begin as the head says: {_told(error)}") from None
        self.events = 0
        self._head = head
        self._digest = Digest()

    @property
    def digest(self) -> str:
        """Of all decisions so far."""
        return str(self._digest)

    def take(self, place: Place, line: Line) -> None:
        """Decide on one more line.

        Raises:
            Parted: if the decision is not the one that was recorded.
            BadLog: if the core cannot take the event in.
        """
        if isinstance(line, Head):
            self._check(place, line)
        elif isinstance(line, Entry):
            self._decide(place, line)

    def _check(self, place: Place, head: Head) -> None:
        if head.part > 1 and (head.events, head.decided) != (self.events, self.digest):
            raise Parted(
                f"{place}: {head.events} events were to be behind this file with the digest"
                f" {head.decided}; there are {self.events} with {self.digest}"
            )

    def _decide(self, place: Place, entry: Entry) -> None:
        try:
            effects = step(self.state, entry.event, entry.at)
        except Exception as error:
            kind = type(entry.event).__name__
            raise BadLog(f"{place}: the core fails on this {kind}: {_told(error)}") from error
        self.events += 1
        decided = self._digest.add(effects) if effects else ""
        if decided == entry.decided:
            return
        did = tuple(outcome(effects))
        raise Parted(
            f"{place}: event {self.events}, {type(entry.event).__name__}, was decided otherwise"
            f" than recorded\n  recorded {_shown(entry.did)}\n  now      {_shown(did)}"
            f"\n  the log was written by version {self._head.version}"
        )


def _shown(did: tuple[tuple[str, ...], ...]) -> str:
    told = ", ".join(" ".join(deed) for deed in did[:_SHOWN]) or "nothing that is told in short"
    return told + (f" and {len(did) - _SHOWN} more" if len(did) > _SHOWN else "")


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
