"""Gangs of tasks."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from croupier.model.errors import InvalidRequest
from croupier.model.gang import MAX_GANG_TASKS, GangMember, GangPlacement, check_gang
from croupier.model.task_group import GroupPart
from croupier.sdk.task import Task


@dataclass(frozen=True, slots=True)
class Gang:
    """Tasks that are placed together, on one or several agents: all of them, or none.

        await framework.submit([leader, *workers], gang=Gang(same="rack"))

    Each member finds its rank, which is its place in the call, in CROUPIER_RANK and RANK, the
    number of members in CROUPIER_SIZE and WORLD_SIZE, all hosts in CROUPIER_GANG_HOSTS and in the
    file CROUPIER_HOSTFILE, and a place to meet in MASTER_ADDR and MASTER_PORT. That is the first
    port of rank 0, if it asks for `ports:1`, else 29500.

    What the end of a member means to the others is the `part` of its task, as in a group: others
    are KILLED with GANG_ENDED. A member whose agent is unreachable counts as ended.

    A gang with `restarts` goes back to the front of its queue instead, all tasks with their ids,
    and begins anew when it is placed again: each task is then QUEUED with GANG_ENDED. As long as
    it may, its framework is not told that a task has finished. A kill by the framework ends it.

    Attributes:
        gang_id: an id that no other gang of the framework has.
        same: an attribute whose value all agents of the gang share, such as a rack; `host`: all
            members run on one agent.
        spread: an attribute of which no two members share a value; `host`: no two run on one agent.
        pack: take few agents, those with the most free first.
        restarts: how often all tasks start again after one has failed, or its agent was lost.
    """

    gang_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    same: str = ""
    spread: str = ""
    pack: bool = False
    restarts: int = 0

    def members(self, tasks: Iterable[Task]) -> list[Task]:
        """Return the tasks as members of this gang.

        Raises:
            InvalidRequest: if they cannot be one.
        """
        listed = list(tasks)
        if not 1 <= len(listed) <= MAX_GANG_TASKS:
            raise InvalidRequest(f"a gang has 1 to {MAX_GANG_TASKS} tasks, not {len(listed)}")
        placement = GangPlacement(self.same, self.spread, self.pack)
        member = GangMember(self.gang_id, 0, len(listed), GroupPart.MEMBER, placement)
        member = replace(member, restarts=self.restarts)
        made = [
            task.in_gang(replace(member, rank=rank, part=task.part))
            for rank, task in enumerate(listed)
        ]
        check_gang([task.info.gang for task in made])
        return made
