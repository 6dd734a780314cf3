"""Log lines: one per event, named in snake_case, with ids bound. Never a sentence."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]


def configure_logging(log_format: LogFormat = "auto", level: LogLevel = "info") -> None:
    """Send log lines to stderr: JSON, or text for people; `auto` is text on a terminal."""
    terminal = sys.stderr.isatty()
    as_text = log_format == "text" or (log_format == "auto" and terminal)
    render: list[structlog.types.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=terminal)]
        if as_text
        else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
