"""Executors: which tasks may run in one, and the messages between frameworks and executors.

Rule: a message is passed on at once or dropped; it is in no record. So it arrives at most once.
"""

from __future__ import annotations

from collections.abc import Iterator

from croupier.master.core.agents import Agent
from croupier.master.core.effects import Effect, Happened, Send
from croupier.master.core.facts import ExecutorMessaged
from croupier.master.core.frameworks import Framework
from croupier.master.core.messages import MessageArrived
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.agent_orders import ExecutorMessage
from croupier.model.errors import Conflict, InvalidRequest, NotFound, Unavailable
from croupier.model.executor import check_message, message_cost
from croupier.model.ids import AgentId, TaskId
from croupier.model.task import TaskInfo


def executor_of(framework: Framework, task: TaskInfo) -> Task:
    """Return the executor in which a new task is to run; it is placed on an agent.

    Raises InvalidRequest if the framework has no such executor that lives and is placed.
    """
    name = task.executor_id
    found = framework.tasks.get(name)
    if found is None or found.info.executor is None:
        raise InvalidRequest(f"task {task.task_id}: the framework has no executor {name!r}")
    if not takes_tasks(found):
        raise InvalidRequest(f"task {task.task_id}: executor {name} has ended, or is about to")
    if not found.is_counted:
        raise InvalidRequest(f"task {task.task_id}: executor {name} is not placed on an agent now")
    return found


def takes_tasks(executor: Task) -> bool:
    """Return whether an executor has neither ended nor been killed."""
    return not executor.state.is_terminal and executor.kill is None


def check_executor(framework: Framework, task: TaskInfo, agent_id: AgentId) -> None:
    """Raise InvalidRequest if a task names an executor that is not on that agent."""
    if task.executor_id:
        there = executor_of(framework, task).agent_id
        if there != agent_id:
            raise InvalidRequest(
                f"task {task.task_id}: executor {task.executor_id} is on agent {there}, and the"
                f" offer is of {agent_id}"
            )


def send_message(
    state: State, framework: Framework, task_id: TaskId, data: bytes, now: float
) -> Iterator[Effect]:
    """Pass a message of a framework on to one of its executors.

    Raises:
        InvalidRequest: if it is too large, or for no executor.
        NotFound: if the framework has no such task.
        Conflict: if the executor has ended.
        Unavailable: if its agent is not connected, or the framework sends too many messages.
    """
    check_message(data)
    task = framework.tasks.get(task_id)
    if task is None:
        raise NotFound(f"no task {task_id!r}")
    if task.info.executor is None:
        raise InvalidRequest(f"task {task_id} is no executor, so it takes no messages")
    if task.state.is_terminal:
        raise Conflict(f"executor {task_id} has ended")
    agent = state.agents.get(task.agent_id)
    if agent is None or agent.session is None:
        yield Happened(ExecutorMessaged("to_executor", "dropped"))
        raise Unavailable(f"the agent of executor {task_id} is not connected")
    if not framework.messages.try_take(message_cost(data), now):
        yield Happened(ExecutorMessaged("to_executor", "dropped"))
        raise Unavailable("the framework sends messages too fast; this one was dropped")
    yield Send(agent.session, ExecutorMessage(framework.framework_id, task_id, data))
    yield Happened(ExecutorMessaged("to_executor", "sent"))


def on_said(state: State, agent: Agent, message: ExecutorMessage, now: float) -> Iterator[Effect]:
    """Pass a message of an executor on this agent on to its framework, if it is connected."""
    framework = state.frameworks.get(message.framework_id)
    task = agent.tasks.get((message.framework_id, message.task_id))
    is_executor = task is not None and task.info.executor is not None
    if framework is None or framework.session is None or not is_executor:
        yield Happened(ExecutorMessaged("to_framework", "dropped"))
        return
    if not framework.said.try_take(message_cost(message.data), now):
        yield Happened(ExecutorMessaged("to_framework", "dropped"))
        return
    arrived = MessageArrived(message.task_id, agent.agent_id, message.data)
    yield Send(framework.session, arrived)
    yield Happened(ExecutorMessaged("to_framework", "sent"))
