"""The master's log: one line per fact, with its ids, at the level that operators want it."""

from __future__ import annotations

import re
from dataclasses import fields
from enum import Enum

from croupier.master.core.facts import (
    AgentDrained,
    AgentHealthy,
    AgentJoined,
    AgentLeft,
    AgentOperated,
    AgentRefused,
    AgentUnhealthy,
    CallAnswered,
    Fact,
    FrameworkJoined,
    FrameworkLeft,
    FrameworkTornDown,
    PreemptionBegun,
    PreemptionEnded,
    RoleChanged,
    TaskMoved,
)
from croupier.model.task import TaskState
from croupier.process.logging import get_logger

_log = get_logger("croupier.master")
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


def log_fact(fact: Fact) -> None:
    """Log `fact` under its own name in snake_case."""
    said = {field.name: getattr(fact, field.name) for field in fields(fact)}
    said = {name: v.name if isinstance(v, Enum) else v for name, v in said.items() if v != ""}
    name = _WORD.sub("_", type(fact).__name__).lower()
    match fact:
        case AgentJoined() | AgentLeft() | FrameworkJoined() | FrameworkLeft() | RoleChanged():
            _log.info(name, **said)
        case PreemptionBegun() | PreemptionEnded() | AgentOperated() | AgentDrained():
            _log.info(name, **said)
        case AgentUnhealthy() | AgentRefused():
            _log.warning(name, **said)
        case AgentHealthy() | FrameworkTornDown():
            _log.info(name, **said)
        case CallAnswered(outcome="invalid"):
            _log.warning(name, **said)
        case TaskMoved(state=state) if state is TaskState.STAGING or state.is_terminal:
            _log.info(name, **said)
        case _:
            _log.debug(name, **said)
