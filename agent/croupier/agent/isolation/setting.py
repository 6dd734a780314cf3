"""What isolators are built for."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from croupier.agent.shim.build import Shim
from croupier.model.resources import Resources

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.isolation.flags import IsolationFlags


@dataclass(frozen=True, slots=True)
class Setting:
    """What isolators are built for.

    Attributes:
        total: the agent's resources.
        work_dir: absolute; different for each agent of a machine.
        shim: starts tasks.
        has_own_uids: whether a task without a user has a uid that no other live task has.
        secrets: files of the agent's credentials, for no task to see.
        closing: releases what isolators hold for the agent, when it stops; tasks may still run.
    """

    flags: IsolationFlags
    total: Resources
    work_dir: Path
    shim: Shim
    has_own_uids: bool = False
    secrets: tuple[Path, ...] = ()
    closing: ExitStack = field(default_factory=ExitStack)
