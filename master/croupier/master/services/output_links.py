"""Links to the output of tasks: for whoever may read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from croupier.master.core.authorisation import may_on_role
from croupier.master.core.state import State
from croupier.master.link_keys import LinkKeys
from croupier.model.access import Action, Permissions
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.net.output_links import VALID_S, output_path
from croupier.v1 import operator_pb2 as pb

MAX_TASKS: Final = 1_000
STREAMS: Final = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class _Found:
    """A task whose output can be read.

    Attributes:
        roles: the role of the task; all roles of its framework if the task is forgotten.
    """

    agent_id: AgentId
    roles: tuple[Role, ...]
    owner: str


def view_links(
    state: State,
    request: pb.GetOutputLinksRequest,
    permissions: Permissions,
    keys: LinkKeys | None,
    now_s: float,
) -> pb.GetOutputLinksResponse:
    """Return links to the output of the requested tasks, without those that may not be read.

    Args:
        state: of the current term.
        request: names the tasks.
        permissions: of the caller.
        keys: sign the links; None if output needs none.
        now_s: the time, in Unix seconds.

    Raises:
        InvalidRequest: if too many tasks are requested.
    """
    if len(request.tasks) > MAX_TASKS:
        raise InvalidRequest(f"a call returns links to at most {MAX_TASKS:,} tasks")
    answer = pb.GetOutputLinksResponse()
    for named in request.tasks:
        framework_id, task_id = FrameworkId(named.framework_id), TaskId(named.task_id)
        found = _find(state, framework_id, task_id, AgentId(named.agent_id))
        if found is None or not _may_read(permissions, found):
            continue
        agent = state.agents.get(found.agent_id)
        if keys is None:
            links = [output_path(framework_id, task_id, stream) for stream in STREAMS]
        else:
            links = keys.links_of(found.agent_id, framework_id, task_id, STREAMS, now_s)
        answer.links.add(
            framework_id=framework_id,
            task_id=task_id,
            agent_id=found.agent_id,
            http_address="" if agent is None else agent.http_address,
            stdout=links[0],
            stderr=links[1],
            valid_for_ms=0 if keys is None else VALID_S * 1000,
        )
    return answer


def _may_read(permissions: Permissions, found: _Found) -> bool:
    return all(
        may_on_role(permissions, Action.READ_OUTPUT, role, found.owner) for role in found.roles
    )


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
