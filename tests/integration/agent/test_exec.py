"""Commands beside tasks of an agent: their variables, over restarts, and which tasks have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.app import AgentDaemon
from croupier.agent.core.tasks import Key
from croupier.agent.exec.command import ExecCommand
from croupier.model.errors import NotFound
from croupier.model.secrets import SecretValues
from croupier.model.task import TaskState
from croupier.v1 import agent_pb2 as pb
from croupier.wire.task import task_to_wire
from tests.harness.eventually import eventually
from tests.harness.exec_fixture import collect
from tests.harness.scripted_master import F, ScriptedMaster, program
from tests.harness.supervisor_fixture import key
from tests.integration.agent.conftest import Start

VALUES = SecretValues({"PASSWORD": "hunter2"})
T1: Key = (F, key("t1")[1])


async def variables(agent: AgentDaemon) -> set[str]:
    one = await agent.execs.start(T1, ExecCommand(("env",)))
    output, _ = await collect(one)
    assert (await one.wait()).exit_code == 0
    await one.close()
    found = set(output.splitlines())
    assert len([each for each in found if each.startswith("CROUPIER_EXEC_RUN=")]) == 1
    return {each for each in found if not each.startswith("CROUPIER_EXEC_RUN=")}


async def test_a_command_has_the_variables_and_secrets_of_its_task_over_restarts(
    start: Start, master: ScriptedMaster
) -> None:
    first = await start(on_stop="leave")
    await master.agent()
    with pytest.raises(NotFound):
        await variables(first.agent)
    info = program("t1", "sleep", "600", environment={"NAME": "a b"})
    info = replace(info, command=replace(info.command, secrets=VALUES.withheld()))
    launch = pb.LaunchTask(framework_id=F, task=task_to_wire(info, VALUES))
    master.order(pb.Order(launch=launch))
    pid = (await master.state("t1", TaskState.RUNNING)).pid
    told = set(Path(f"/proc/{pid}/environ").read_text().rstrip("\0").split("\0"))
    assert {"NAME=a b", "PASSWORD=hunter2"} < told
    assert await variables(first.agent) == told

    one = await first.agent.execs.start(T1, ExecCommand(("sleep", "600")))
    await first.end()
    assert (await one.wait()).signal is not None, "it ends with the agent"
    second = await start()
    await master.agent(2)
    assert await variables(second.agent) == told
    master.kill("t1", grace_ms=0)
    await master.state("t1", TaskState.KILLED)
    await eventually(lambda: not second.agent.state.is_live(T1))
    with pytest.raises(NotFound, match="task t1 does not run on this agent"):
        await variables(second.agent)
