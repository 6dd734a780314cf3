"""Links to the output of tasks, for callers that may read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import quote

from croupier.master.access.link_keys import LinkKeys
from croupier.master.core.authorisation import may_on_role
from croupier.master.core.state import State
from croupier.model.access import Action, Permissions
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.net.output_links import VALID_S, output_path, usage_path
from croupier.process.time_slice import TimeSlice
from croupier.v1 import operator_pb2 as pb

MAX_TASKS: Final = 1_000
STREAMS: Final = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class ReadableTask:
    """A task whose output the caller may read.

    Attributes:
        http_address: of its agent; empty if it is unknown.
    """

    framework_id: FrameworkId
    task_id: TaskId
    agent_id: AgentId
    http_address: str


def readable_tasks(
    state: State, request: pb.GetOutputLinksRequest, permissions: Permissions
) -> list[ReadableTask]:
    """Return the requested tasks whose output the caller may read.

    Raises:
        InvalidRequest: if too many tasks are requested.
    """
    if len(request.tasks) > MAX_TASKS:
        raise InvalidRequest(f"a call returns links to at most {MAX_TASKS:,} tasks")

    @cache
    def may_read(role: Role, owner: str) -> bool:
        return bool(may_on_role(permissions, Action.READ_OUTPUT, role, owner))

    readable: list[ReadableTask] = []
    for named in request.tasks:
        framework_id, task_id = FrameworkId(named.framework_id), TaskId(named.task_id)
        found = _find(state, framework_id, task_id, AgentId(named.agent_id))
        if found is None or not all(may_read(role, found.owner) for role in found.roles):
            continue
        agent = state.agents.get(found.agent_id)
        address = "" if agent is None else agent.http_address
        readable.append(ReadableTask(framework_id, task_id, found.agent_id, address))
    return readable


async def links_to(
    tasks: list[ReadableTask], keys: LinkKeys | None, now_s: float
) -> pb.GetOutputLinksResponse:
    """Return links to the output and usage of tasks; without `keys` they need no signature.

    `now_s` is the time in Unix seconds. Other tasks of the loop get their turn meanwhile.
    """
    held, answer = TimeSlice(), pb.GetOutputLinksResponse()
    for task in tasks:
        if held.is_over:
            await held.give_way()
        place = task.framework_id, task.task_id
        if keys is None:
            links = [quote(output_path(*place, stream)) for stream in STREAMS]
            usage = quote(usage_path(*place))
        else:
            links = keys.links_of(task.agent_id, *place, STREAMS, now_s)
            usage = keys.usage_link(task.agent_id, *place, now_s)
        answer.links.add(
            framework_id=task.framework_id,
            task_id=task.task_id,
            agent_id=task.agent_id,
            http_address=task.http_address,
            stdout=links[0],
            stderr=links[1],
            usage=usage,
            valid_for_ms=0 if keys is None else VALID_S * 1000,
        )
    return answer


@dataclass(frozen=True, slots=True)
class _Found:
    """A task on an agent.

    Attributes:
        roles: the role of the task; all roles of its framework if the task is forgotten.
    """

    agent_id: AgentId
    roles: tuple[Role, ...]
    owner: str


def _find(
    state: State, framework_id: FrameworkId, task_id: TaskId, agent_id: AgentId
) -> _Found | None:
    """Return a task, or a forgotten task of a known framework on a known agent."""
    framework = state.frameworks.get(framework_id)
    task = None if framework is None else framework.tasks.get(task_id)
    if framework is not None and task is not None:
        return _Found(task.agent_id, (task.role,), framework.owner)
    ended = state.ended.get(framework_id, task_id)
    if ended is not None:
        return _Found(ended.status.agent_id, (ended.role,), ended.owner)
    if framework is not None and agent_id in state.agents:
        return _Found(agent_id, framework.roles, framework.owner)
    return None
