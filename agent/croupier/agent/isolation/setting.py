"""The settings of isolators, and the levels of isolation by the words of `--isolation`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from croupier.agent.shim.build import Shim
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.isolation.flags import IsolationFlags

AUTO: Final = "auto"
NONE: Final = "none"
PROCESS: Final = "process"
# In the order in which they prepare a launch.
LEVELS: Final = (PROCESS, "cgroup", "namespaces", "container")


def parse_levels(text: str) -> tuple[str, ...]:
    """Read `auto`, `none`, or levels separated by commas.

    Raises:
        InvalidRequest: if a word is unknown or given twice, or `auto` or `none` is not alone.
    """
    words = tuple(word.strip() for word in text.split(","))
    if words in ((AUTO,), (NONE,)):
        return words
    unknown = [word for word in words if word not in LEVELS]
    if unknown:
        raise InvalidRequest(
            f"isolation {unknown[0]!r}: give {AUTO}, {NONE}, or some of {','.join(LEVELS)}"
        )
    if len(set(words)) < len(words):
        raise InvalidRequest(f"isolation {text!r} has a word twice")
    return words


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings with which isolators are built.

    Attributes:
        work_dir: absolute; different for each agent of a machine.
        has_own_uids: whether a task without a user has a uid that no other live task has.
        secrets: files of the agent's credentials, for no task to see.
    """

    flags: IsolationFlags
    total: Resources
    work_dir: Path
    shim: Shim
    has_own_uids: bool = False
    secrets: tuple[Path, ...] = ()
