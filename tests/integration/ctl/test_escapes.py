"""Control characters of agents and frameworks never reach a terminal or a text log raw."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from croupier.model.errors import Conflict
from croupier.model.task import TaskState
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from tests.harness.command import croupier, ended, started
from tests.harness.operators import ScriptedOperator, serving
from tests.harness.run_master import Master

EVIL = "x\x1b[2J\x07\u202e\r"
SHOWN = "x\\x1b[2J\\x07\\u202e\\r"


@pytest.fixture
async def operator() -> AsyncIterator[ScriptedOperator]:
    attribute = resources_pb2.Attribute(name="a" + EVIL, text=EVIL)
    agent = framework_pb2.AgentDescription(agent_id="a1", hostname=EVIL, attributes=[attribute])
    blocker = pb.DrainBlocker(framework_id="f1", task_id=EVIL, reason=EVIL)
    drain = pb.Drain(tasks_left=1, blockers=[blocker])
    agent_view = pb.AgentView(agent=agent, state="connected", drain=drain)
    info = framework_pb2.FrameworkInfo(framework_id="f1", name=EVIL, roles=["ads"])
    framework = pb.FrameworkView(framework=info, state="disconnected")
    task = pb.TaskView(
        framework_id="f1",
        agent_id="a1",
        role="ads",
        task=task_pb2.TaskInfo(task_id=EVIL, name=EVIL),
        status=task_pb2.TaskStatus(state=task_pb2.TASK_RUNNING, message=EVIL),
    )
    reason = pb.PassedOver(cause=EVIL, role="ads", detail=EVIL)
    async with serving(ScriptedOperator()) as operator:
        operator.answers |= {
            pb.ListAgentsRequest: pb.ListAgentsResponse(agents=[agent_view]),
            pb.ListFrameworksRequest: pb.ListFrameworksResponse(frameworks=[framework]),
            pb.ListTasksRequest: pb.ListTasksResponse(tasks=[task]),
            pb.ExplainRequest: pb.ExplainResponse(reasons=[reason], framework=framework),
            pb.KillTaskRequest: pb.KillTaskResponse(task=task),
            pb.DrainAgentRequest: pb.DrainAgentResponse(agent=agent_view),
            pb.DeactivateAgentRequest: pb.DeactivateAgentResponse(agent=agent_view),
            pb.MarkAgentGoneRequest: pb.MarkAgentGoneResponse(agent=agent_view),
            pb.UpdateRolesRequest: Conflict(EVIL),
        }
        yield operator


@pytest.mark.parametrize(
    "words",
    [
        ("agents",),
        ("frameworks",),
        ("tasks",),
        ("why", "f1"),
        ("kill", "t1"),
        ("agent", "show", "a1"),
        ("agent", "deactivate", "a1"),
        ("agent", "gone", "a1", "--dry-run"),
        ("agent", "gone", "a1", "--yes"),
        ("drain", "a1"),
        ("drain", "a1", "--dry-run"),
        ("framework", "teardown", "f1", "--dry-run"),
        ("weights", "set", "ads", "2"),
        ("agents", "--json"),
    ],
)
async def test_no_command_prints_control_characters(
    operator: ScriptedOperator, words: tuple[str, ...]
) -> None:
    done = await croupier(*words, "--master", operator.address)
    printed = done.out + done.err
    assert all(char.isprintable() or char == "\n" for char in printed), ascii(printed)
    assert SHOWN in printed or "--json" in words


async def test_messages_of_a_run_are_escaped() -> None:
    async with (
        Master() as master,
        started("run", "--master", master.address, "--", "true") as run,
    ):
        await master.subscribed()
        master.offer("cpus:1;mem:1GB", http_address="127.0.0.1:9")
        await master.update("true-9b5d", TaskState.LOST, message=EVIL)
        done = await ended(run)
    assert done.code == 1
    assert f"true-9b5d: LOST: {SHOWN}\n" in done.err


async def test_text_logs_are_escaped() -> None:
    program = (
        "import sys, structlog\n"
        "from croupier.process.logging import configure_logging\n"
        "configure_logging('text', 'info')\n"
        "log = structlog.get_logger()\n"
        f"evil = {EVIL!r}\n"
        "log.info('event', said=evil, many=[evil], word=evil.strip())\n"
        "try:\n    raise ValueError(evil)\nexcept ValueError:\n    log.exception('failed')\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE
    )
    _, err = await asyncio.wait_for(process.communicate(), 20)
    text = err.decode()
    assert all(char.isprintable() or char == "\n" for char in text), ascii(text)
    assert f"said={SHOWN!r}" in text or f"said={SHOWN}" in text or f"said='{SHOWN}'" in text
    assert f"ValueError: {SHOWN}\n" in text
