"""Links to the output of tasks, for callers that may read it."""

from __future__ import annotations

from functools import cache
from typing import Final
from urllib.parse import quote

from croupier.master.access.cluster_keys import LinkKeys
from croupier.master.core.authorisation import may_on_role
from croupier.master.core.state import State
from croupier.master.services.task_places import NamedTask, TaskPlace, places_of
from croupier.model.access import Action, Permissions
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
from croupier.net.output_links import VALID_S, output_path, usage_path
from croupier.process.time_slice import TimeSlice
from croupier.v1 import operator_pb2 as pb

MAX_TASKS: Final = 1_000
STREAMS: Final = ("stdout", "stderr")


def readable_tasks(
    state: State, request: pb.GetOutputLinksRequest, permissions: Permissions
) -> list[TaskPlace]:
    """Return the requested tasks whose output may be read; raises InvalidRequest if too many."""
    if len(request.tasks) > MAX_TASKS:
        raise InvalidRequest(f"a call returns links to at most {MAX_TASKS:,} tasks")

    @cache
    def may_read(role: Role, owner: str) -> bool:
        return bool(may_on_role(permissions, Action.READ_OUTPUT, role, owner))

    readable: list[TaskPlace] = []
    for each in request.tasks:
        named = NamedTask.of(each)
        # Unlike elsewhere, a task without its framework is none.
        places = places_of(state, named) if named.framework_id else []
        readable += [
            place for place in places if all(may_read(role, place.owner) for role in place.roles)
        ]
    return readable


async def links_to(
    tasks: list[TaskPlace], keys: LinkKeys | None, now_s: float
) -> pb.GetOutputLinksResponse:
    """Return links to the output and usage of tasks; without `keys` they need no signature.

    `now_s` is the time in Unix seconds. Other tasks of the loop get their turn meanwhile.
    """
    held, answer = TimeSlice(), pb.GetOutputLinksResponse()
    for task in tasks:
        if held.is_over:
            await held.give_way()
        place = task.framework_id, task.task_id
        paths = (*(output_path(*place, stream) for stream in STREAMS), usage_path(*place))
        stdout, stderr, usage = (
            quote(path) if keys is None else keys.link_to(task.agent_id, path, now_s)
            for path in paths
        )
        answer.links.add(
            framework_id=task.framework_id,
            task_id=task.task_id,
            agent_id=task.agent_id,
            http_address=task.http_address,
            stdout=stdout,
            stderr=stderr,
            usage=usage,
            valid_for_ms=0 if keys is None else VALID_S * 1000,
        )
    return answer
