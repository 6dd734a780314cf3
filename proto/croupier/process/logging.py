"""Log lines: one per event, named in snake_case, with ids as fields.

structlog is imported with the first line that is logged.
"""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, cast

from croupier.model.printable import printable, printable_lines

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger
    from structlog.types import EventDict, Processor

# The lowest level of a line that is written.
_lowest = logging.NOTSET

LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]


def _load() -> ModuleType:
    """Import structlog without rich, which it would load for tracebacks that we do not print."""
    if "structlog" not in sys.modules and "rich" not in sys.modules:
        sys.modules["rich"] = cast("ModuleType", None)
        try:
            import structlog
        finally:
            del sys.modules["rich"]
    import structlog

    return structlog


class _LazyLogger:
    """A structlog logger that is made at its first use."""

    def __init__(self, name: str) -> None:
        self._name, self._logger = name, None

    def __getattr__(self, attribute: str) -> Any:
        if self._logger is None:
            structlog = _load()
            self._logger = structlog.get_logger(self._name)
        return getattr(self._logger, attribute)


def get_logger(name: str) -> BoundLogger:
    """Return the structlog logger `name`."""
    return cast("BoundLogger", _LazyLogger(name))


def is_logged(level: int) -> bool:
    """Return whether a line of this level is written, to save the work for one that is not."""
    return level >= _lowest


def _escape(_: object, __: str, event: EventDict) -> EventDict:
    """Escape unprintable characters in the values of an event; a traceback keeps its lines."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable_lines(value) if name == "exception" else printable(value)
    return event


def configure_logging(log_format: LogFormat = "auto", level: LogLevel = "info") -> None:
    """Write log lines to stderr: JSON, or text for people; `auto` is text on a terminal.

    Text from peers is escaped in both. Tracebacks show no variables: these may be secrets.
    """
    global _lowest
    _lowest = getattr(logging, level.upper())
    structlog = _load()
    terminal = sys.stderr.isatty()
    as_text = log_format == "text" or (log_format == "auto" and terminal)
    plain = structlog.dev.plain_traceback
    render: list[Processor] = (
        [
            structlog.processors.format_exc_info,
            _escape,
            structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=plain),
        ]
        if as_text
        else [
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            ),
            structlog.processors.JSONRenderer(),
        ]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_lowest),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
