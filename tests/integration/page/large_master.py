"""A real master with a large state: python -m tests.integration.page.large_master [AGENTS].

Prints the URL of its page once the state is made, and serves until its input ends. Its agents and
frameworks have no streams: the events of their sessions are put into the inbox of the driver, as
the services of the master do.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from croupier.master.app import MasterDaemon
from croupier.master.core.agent_commands import Deactivate, Drain, OperateAgent
from croupier.master.core.calls import Submit
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, FrameworkCalled, Register, Subscribe
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import RoleChange
from croupier.master.core.state import State
from croupier.master.core.step import Event
from croupier.master.core.tasks import Task
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import Command, Reason, Source, TaskInfo, TaskState, TaskStatus
from croupier.process.logging import configure_logging
from tests.harness.eventually import eventually
from tests.harness.masters import running_master

AGENTS: Final = 10_000
FRAMEWORKS, ATTRIBUTES = 40, 64
ROLES: Final = ("ads/prod", "ads/test", "search/index", "search/live", "ml/train", "ml/serve")
TOTAL: Final = Resources.parse("cpus:16;mem:64GB;disk:500GB")
AGENT_SESSION, FRAMEWORK_SESSION = 10**6, 10**7
START_S: Final = 120.0
# Agents that send nothing must not become suspected, nor frameworks removed.
QUIET: Final = {"heartbeat": 300.0, "agent_timeout": 3600.0}


async def fill(master: MasterDaemon, agents: int) -> None:
    """Make the state: agents, then frameworks with tasks and offers, then a drain."""
    put = master.driver.inbox.put
    for number in range(agents):
        await put(_register(number))
    await eventually(lambda: len(master.driver.state.agents) == agents, START_S)
    for number in range(FRAMEWORKS):
        await put(_subscribe(number))
        if number % 4:
            await put(_submit(number, agents // 50))
    expected = sum(agents // 50 for number in range(FRAMEWORKS) if number % 4)
    await eventually(lambda: len(_placed(master.driver.state)) == expected, START_S)
    for session, status in _running(master.driver.state):
        await put(AgentReported(session, (status,)))
    for agent_id, action in ((_agent_id(1), Drain(None)), (_agent_id(2), Deactivate())):
        await master.driver.ask(partial(OperateAgent, agent=agent_id, action=action))
    # A guarantee of 20,000 cpus, and a limit of 12,000.
    prod = RoleSettings(2_000, guarantee={"cpus": 20_000_000})
    changes = (
        RoleChange(Role("ads/prod"), prod),
        RoleChange(Role("ml"), RoleSettings(3_000)),
        RoleChange(Role("ml/train"), RoleSettings(limit={"cpus": 12_000_000})),
    )
    await master.driver.ask(partial(UpdateRoles, changes=changes))


def _agent_id(number: int) -> AgentId:
    return AgentId(f"agent-{number:05d}")


def _register(number: int) -> Event:
    attributes = {f"attribute{each}": f"value{number % 97}" for each in range(ATTRIBUTES)}
    session, host = SessionId(AGENT_SESSION + number), f"node{number}.example.org"
    address = f"http://10.0.{number // 250}.{number % 250}:5081"
    return Register(session, _agent_id(number), host, TOTAL, attributes, address)


def _subscribe(number: int) -> Event:
    """Every fourth framework asks for offers, the others submit tasks."""
    session, role = SessionId(FRAMEWORK_SESSION + number), Role(ROLES[number % len(ROLES)])
    demand = Demand(Resources.parse("cpus:4;mem:8GB"), 0 if number % 4 else 8)
    name = f"{role.replace('/', '-')}-{number}"
    return Subscribe(session, FrameworkId(""), name, (role,), "client", 3600.0, 60.0, (demand,))


def _submit(number: int, tasks: int) -> Event:
    unit = Resources.parse(f"cpus:{3 + number % 13};mem:{2 + number % 7 * 8}GB;disk:{number}GB")
    command = Command(shell="exec serve --shard 1")
    infos = tuple(
        TaskInfo(TaskId(f"t-{number}-{each}"), command, unit, name=f"shard {each}")
        for each in range(tasks)
    )
    return FrameworkCalled(SessionId(FRAMEWORK_SESSION + number), 1, Submit(infos))


def _placed(state: State) -> list[Task]:
    return [
        task
        for framework in state.frameworks.values()
        for task in framework.tasks.values()
        if task.agent_id
    ]


def _running(state: State) -> list[tuple[SessionId, TaskStatus]]:
    """Return the report of each task that it runs, or for every 50th that it has failed."""
    reports = []
    for number, task in enumerate(_placed(state)):
        session = SessionId(AGENT_SESSION + int(task.agent_id.rpartition("-")[2]))
        has_failed = number % 50 == 0
        status = TaskStatus(
            task.framework_id,
            task.info.task_id,
            task.agent_id,
            TaskState.FAILED if has_failed else TaskState.RUNNING,
            Source.EXECUTOR,
            Reason.COMMAND_EXECUTOR_FAILED if has_failed else Reason.NONE,
            message="exited with 1" if has_failed else "",
            sequence=1,
            time_ms=int(time.time() * 1000),
        )
        reports.append((session, status))
    return reports


async def serve(agents: int) -> None:
    """Make the state, print the URL, and serve until the input ends."""
    async with running_master(**QUIET) as master:
        await fill(master, agents)
        print(f"http://{master.http_address}", flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def large_master(agents: int = AGENTS) -> Iterator[str]:
    """Run one in a process of its own until the end of the block; yield the URL of its page."""
    argv = (sys.executable, "-m", "tests.integration.page.large_master", str(agents))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().decode().strip()
            assert url, "it has failed"
            yield url
        finally:
            process.kill()


if __name__ == "__main__":
    configure_logging("text", "warning")
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else AGENTS))
