"""A finished span, and the trace context that a task brings along."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

# The label of a task with its W3C trace context, such as 00-TRACE-SPAN-01.
LABEL: Final = "traceparent"
_CONTEXT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a task belongs to.

    Attributes:
        parent_id: the span that launched it; 0 if there is none.
    """

    trace_id: int
    parent_id: int = 0
    is_sampled: bool = True


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a task's life that has ended.

    Attributes:
        parent_id: 0 for the first span of a trace.
        is_remote: whether the parent is a span of the framework's.
        start_ns: as `end_ns`, nanoseconds since 1970.
        error: why it failed; empty if it did not.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    attributes: dict[str, str] = field(default_factory=dict)
    error: str = ""
    is_remote: bool = False


def parse_context(text: str) -> TraceContext | None:
    """Read a W3C `traceparent`; None if it is not one."""
    match = _CONTEXT.fullmatch(text)
    if match is None:
        return None
    version, trace, parent, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace, 16) or not int(parent, 16):
        return None
    return TraceContext(int(trace, 16), int(parent, 16), bool(int(flags, 16) & 1))
