"""Where in the log the records are that count: those that no later one has replaced."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from croupier.agent.core.records import Record, forgets, place_of


class Span(NamedTuple):
    """Where a record's line is in the log, in bytes."""

    begin: int
    end: int


@dataclass(slots=True)
class KeptRecords:
    """Where the records are that count, by subject and then by place."""

    spans: dict[str, dict[str, Span]] = field(default_factory=dict)
    size: int = 0

    def add(self, record: Record, span: Span) -> None:
        """Take in a record of the log, in order; it may replace others, or all of its subject."""
        subject, part = place_of(record)
        if forgets(record):
            gone = self.spans.pop(subject, {})
            self.size -= sum(end - begin for begin, end in gone.values())
            return
        self.put(subject, part, span)

    def put(self, subject: str, part: str, span: Span) -> None:
        """Take in a record that belongs there, in place of the one that was there."""
        parts = self.spans.setdefault(subject, {})
        before = parts.get(part)
        if before is not None:
            self.size -= before.end - before.begin
        parts[part] = span
        self.size += span.end - span.begin

    def in_order(self) -> list[tuple[str, str, Span]]:
        """All of them, as they stand in the log. O(n log n)."""
        spans = [
            (subject, part, span)
            for subject, parts in self.spans.items()
            for part, span in parts.items()
        ]
        return sorted(spans, key=lambda each: each[2])
