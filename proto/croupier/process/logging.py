"""Log lines: one per event, named in snake_case, with ids as fields; and the standard error.

Rule: everything that the process writes to `sys.stderr` passes one `LineWriter`: log lines,
tracebacks, warnings and the last line of a failed start. So the standard error never blocks and
never fails. structlog is imported with the first line that is logged.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import select
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, cast

from croupier.model.printable import printable, printable_lines
from croupier.process.queue_writer import RETRY_S, LineWriter

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger
    from structlog.types import EventDict, Processor

# The lowest level of a line that is written.
_lowest = logging.NOTSET
# Takes all lines; None before `configure_logging`.
_lines: LineWriter | None = None

LogFormat = Literal["auto", "json", "text", "journal"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Priorities of syslog, which journald reads from the beginning of a line.
_PRIORITIES: Final = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}
_FD: Final = 2
_CLOSE_S: Final = 1.0


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
        self._name, self._lowest = name, _lowest
        self._logger: Any = None

    def __getattr__(self, attribute: str) -> Any:
        if self._logger is None or self._lowest != _lowest:
            structlog = _load()
            self._logger, self._lowest = structlog.get_logger(self._name), _lowest
        return getattr(self._logger, attribute)


class _LineLogger:
    """Writes the lines that structlog has made, by a method for each level."""

    def __init__(self, lines: LineWriter, *, has_priorities: bool) -> None:
        """Prefix each line with its priority if `has_priorities`."""
        for level, priority in _PRIORITIES.items():
            prefix = f"<{priority}>" * has_priorities
            setattr(self, level, partial(_put_line, lines, prefix))


def _put_line(lines: LineWriter, prefix: str, line: str) -> None:
    lines.put(f"{prefix}{line}\n".encode(errors="backslashreplace"))


def get_logger(name: str) -> BoundLogger:
    """Return the structlog logger `name`."""
    return cast("BoundLogger", _LazyLogger(name))


def time_text(ms: int) -> str:
    """Return a time in milliseconds since the epoch, as log lines show it."""
    seconds, milliseconds = divmod(ms, 1000)
    return f"{_second_text(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=64)
def _second_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")


def is_logged(level: int) -> bool:
    """Return whether a line of this level is written, to save the work for one that is not."""
    return level >= _lowest


def _escape(_: object, __: str, event: EventDict) -> EventDict:
    """Escape unprintable characters in the values of an event; a traceback keeps its lines."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable_lines(value) if name == "exception" else printable(value)
    return event


def lines_lost() -> int:
    """Return the number of log lines that could not be written."""
    return 0 if _lines is None else _lines.lost


def _omit_unknown(_: object, __: str, event: EventDict) -> EventDict:
    """Omit the fields without a value."""
    return {name: value for name, value in event.items() if value is not None}


def set_level(level: LogLevel) -> None:
    """Write lines of this level and above from now on."""
    global _lowest
    _lowest = getattr(logging, level.upper())
    structlog = _load()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_lowest))


def configure_logging(log_format: LogFormat = "auto", level: LogLevel = "info") -> None:
    """Write log lines to stderr, which is replaced: it never blocks and never fails.

    Formats: JSON; text for people; journal: JSON after the priority that journald reads. `auto` is
    text on a terminal, and journal if stderr is the journal.
    Text from peers is escaped in all. Tracebacks show no variables: these may be secrets.
    """
    global _lines
    hold_standard_descriptors()
    structlog = _load()
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if log_format == "auto":
        log_format = "text" if terminal else "journal" if _is_journal() else "json"
    is_journal = log_format == "journal"
    _lines = lines = replace_standard_error(_on_recovered, f"<{_PRIORITIES['error']}>" * is_journal)
    plain = structlog.dev.plain_traceback
    render: list[Processor] = (
        [
            structlog.processors.format_exc_info,
            _escape,
            structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=plain),
        ]
        if log_format == "text"
        else [
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            ),
            structlog.processors.JSONRenderer(),
        ]
    )
    structlog.configure(
        processors=[
            _omit_unknown,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *render,
        ],
        logger_factory=lambda *_: _LineLogger(lines, has_priorities=is_journal),
        cache_logger_on_first_use=True,
    )
    set_level(level)


def _is_journal() -> bool:
    """Return whether stderr is the stream of journald that systemd has named."""
    about = os.fstat(2)
    return os.environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"


def _on_recovered(lost: int) -> None:
    get_logger("croupier.log").warning("log_recovered", lines_lost=lost)


class StandardError(io.TextIOBase):
    """A text stream whose lines go to a `LineWriter`."""

    def __init__(self, lines: LineWriter, prefix: str = "") -> None:
        """Write `prefix` before each line."""
        self._lines, self._prefix = lines, prefix
        self._is_inside_line = False

    def write(self, text: str) -> int:
        """Queue `text`."""
        for part in text.splitlines(keepends=True):
            begin = "" if self._is_inside_line else self._prefix
            self._is_inside_line = not part.endswith("\n")
            self._lines.put((begin + part).encode(errors="backslashreplace"))
        return len(text)

    def isatty(self) -> bool:
        """Return whether the descriptor is a terminal."""
        return os.isatty(_FD)


def replace_standard_error(on_recovered: Callable[[int], None], prefix: str = "") -> LineWriter:
    """Replace `sys.stderr` by a `StandardError` over the lines that are returned."""
    lines = lines_to(_FD, on_recovered)
    sys.stderr = cast("TextIO", StandardError(lines, prefix))
    return lines


def lines_to(fd: int, on_recovered: Callable[[int], None]) -> LineWriter:
    """Return a writer of lines to `fd`; what waits at the process's exit is written within 1 s.

    `on_recovered` is called with the number of lost lines once lines can be written again.
    """
    lines = LineWriter(f"lines-{fd}", partial(_write, fd), on_recovered=on_recovered)
    atexit.register(lines.close, _CLOSE_S)
    return lines


def hold_standard_descriptors() -> None:
    """Open /dev/null for each closed standard descriptor: a store must not get its number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _FD:
        os.set_inheritable(fd, True)
    os.close(fd)


def _write(fd: int, data: bytes) -> None:
    """Write all of `data`; a descriptor that does not block has a second to take more of it."""
    rest, is_again = memoryview(data), False
    while rest:
        try:
            rest, is_again = rest[os.write(fd, rest) :], False
        except BlockingIOError:
            ready = select.poll()
            ready.register(fd, select.POLLOUT)
            if is_again or not ready.poll(RETRY_S * 1000):
                raise
            is_again = True
