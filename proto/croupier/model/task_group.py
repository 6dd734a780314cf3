"""Groups of tasks: they run on one agent, start together, and end by the rules of their parts.

A member that does not end as FINISHED ends all others. The end of a sidecar ends no other, and
sidecars are ended when nothing else is left. The end of the leader ends all others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.ids import check_id
from croupier.model.value import value

MAX_GROUP_TASKS: Final = 64
# The variable with the path of the directory that the tasks of a group share.
GROUP_DIRECTORY: Final = "CROUPIER_GROUP_DIR"


class GroupPart(IntEnum):
    """What the end of a task means to its group; the numbers are those of the wire."""

    MEMBER = 0
    SIDECAR = 1
    LEADER = 2

    def __str__(self) -> str:
        return self.name.lower()


def parse_part(text: str) -> GroupPart:
    """Return the part of that name; raises InvalidRequest if there is none."""
    found = next((part for part in GroupPart if str(part) == text), None)
    if found is None:
        raise InvalidRequest(f"a task's part is member, sidecar or leader, not {text[:80]!r}")
    return found


@value
class TaskGroup:
    """The membership of a task in a group."""

    group_id: str
    part: GroupPart = GroupPart.MEMBER

    def check(self) -> None:
        """Raise InvalidRequest if the id is illegal."""
        check_id("group", self.group_id)


def check_parts(group_id: str, parts: Sequence[GroupPart]) -> None:
    """Raise InvalidRequest if tasks with these parts cannot be a group."""
    if len(parts) > MAX_GROUP_TASKS:
        raise InvalidRequest(f"group {group_id} has more than {MAX_GROUP_TASKS} tasks")
    if not parts:
        raise InvalidRequest(f"group {group_id} has no tasks")
    if parts.count(GroupPart.LEADER) > 1:
        raise InvalidRequest(f"group {group_id} has more than one leader")
    if all(part is GroupPart.SIDECAR for part in parts):
        raise InvalidRequest(f"group {group_id} has sidecars only; one task must be a member")


def ends_rest(part: GroupPart, has_finished: bool, left: Collection[GroupPart]) -> bool:
    """Return whether the end of a task ends those of its group that are `left`.

    `has_finished`: whether it ended as FINISHED.
    """
    has_failed = part is GroupPart.MEMBER and not has_finished
    return (
        part is GroupPart.LEADER or has_failed or all(other is GroupPart.SIDECAR for other in left)
    )
