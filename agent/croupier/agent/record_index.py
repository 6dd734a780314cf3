"""Index of the records in a checkpoint that no later record has replaced."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from croupier.agent.core.records import Record, forgets, place_of


class Span(NamedTuple):
    """The place of a record's line in the log, in bytes."""

    begin: int
    end: int


@dataclass(slots=True)
class CurrentRecords:
    """The spans of current records by subject and part, and their total size in bytes."""

    spans: dict[str, dict[str, Span]] = field(default_factory=dict)
    size: int = 0

    def add(self, record: Record, span: Span) -> None:
        """Add the next record of the log; it may replace another, or all of its subject."""
        subject, part = place_of(record)
        if forgets(record):
            gone = self.spans.pop(subject, {})
            self.size -= sum(end - begin for begin, end in gone.values())
            return
        self.put(subject, part, span)

    def put(self, subject: str, part: str, span: Span) -> None:
        """Add the span of a record, in place of an earlier one."""
        parts = self.spans.setdefault(subject, {})
        before = parts.get(part)
        if before is not None:
            self.size -= before.end - before.begin
        parts[part] = span
        self.size += span.end - span.begin

    def in_order(self) -> list[tuple[str, str, Span]]:
        """Return all spans in the order of the log. O(n log n)."""
        spans = [
            (subject, part, span)
            for subject, parts in self.spans.items()
            for part, span in parts.items()
        ]
        return sorted(spans, key=lambda each: each[2])
