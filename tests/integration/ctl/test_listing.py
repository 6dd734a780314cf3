"""The commands that list and kill, as processes, against a scripted master."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import pytest

from croupier.model.errors import InvalidRequest, NotFound, Unavailable
from croupier.model.resources import Resources
from croupier.net.address import Address
from croupier.net.transport import bind, make_server
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire
from tests.harness.command import Ended, croupier, started
from tests.harness.operators import ScriptedOperator, serving


@pytest.fixture
async def operator() -> AsyncIterator[ScriptedOperator]:
    async with serving(ScriptedOperator()) as operator:
        operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(
            agents=[
                pb.AgentView(
                    agent=framework_pb2.AgentDescription(agent_id=f"a{number}", hostname="h"),
                    state="connected",
                    total=resources_to_wire(Resources.parse("cpus:1.5;mem:1GB")),
                )
                for number in range(2)
            ]
        )
        yield operator


async def test_ages_are_by_the_clock_of_the_master(operator: ScriptedOperator) -> None:
    page = operator.answers[pb.ListAgentsRequest]
    page.now_ms = 1_000_000_000
    page.agents[0].connected_since_ms = 1_000_000_000 - 200_000
    done = await croupier("agents", "--master", operator.address, "--state", "connected,drained")
    assert [line.split()[-1] for line in done.out.splitlines()] == ["CONNECTED", "3m20s", "-"]
    assert operator.asked[-1] == pb.ListAgentsRequest(states=["connected", "drained"])


async def test_the_running_masters(operator: ScriptedOperator) -> None:
    operator.answers[pb.ListMastersRequest] = pb.ListMastersResponse(
        masters=[
            pb.MasterView(
                address="m1:5050",
                leader=True,
                master_id="c-4",
                http_address="https://m1:5080",
                version="0.9.0",
                since_ms=1_000_000,
                epoch=4,
                term_since_ms=1_060_000,
            ),
            pb.MasterView(address="m2:5050", since_ms=2_000_000, epoch=3, term_since_ms=9),
            pb.MasterView(address="m3:5050"),
        ],
        now_ms=1_120_000,
    )
    done = await croupier("masters", "--master", operator.address)
    assert [line.split() for line in done.out.splitlines()] == [
        ["MASTER", "ROLE", "TERM", "TERM", "AGE", "UP", "VERSION", "PAGE"],
        ["m1:5050", "leads", "4", "1m", "2m", "0.9.0", "https://m1:5080"],
        ["m2:5050", "follows", "-", "-", "0s", "-", "-"],
        ["m3:5050", "follows", "-", "-", "-", "-", "-"],
    ]
    done = await croupier("masters", "--json", "--master", operator.address)
    assert [each["epoch"] for each in json.loads(done.out)] == [4, 3, None]


async def test_filters_of_tasks(operator: ScriptedOperator) -> None:
    operator.answers[pb.ListTasksRequest] = pb.ListTasksResponse()
    flags = "--state running,QUEUED --state TASK_LOST --role ads --agent h --older 10m --name x"
    done = await croupier("tasks", "--master", operator.address, *flags.split())
    assert (done.code, done.out) == (0, "no tasks pass these filters\n")
    assert operator.asked[-1] == pb.ListTasksRequest(
        states=[task_pb2.TASK_RUNNING, task_pb2.TASK_QUEUED, task_pb2.TASK_LOST],
        role="ads",
        agent="h",
        min_age_ms=600_000,
        text="x",
    )


async def test_an_unknown_state_names_the_nearest_one() -> None:
    done = await croupier("tasks", "--state", "RUNING")
    assert (done.code, done.out) == (2, "")
    start = "croupier: --state: unknown state 'RUNING': did you mean RUNNING? It is one of "
    assert done.err.startswith(start)
    assert "FINISHED" in done.err


async def test_a_value_that_the_master_does_not_know_is_a_wrong_argument(
    operator: ScriptedOperator,
) -> None:
    operator.answers[pb.ListAgentsRequest] = InvalidRequest("unknown state 'x'")
    done = await croupier("agents", "--state", "x", "--master", operator.address)
    assert (done.code, done.err) == (2, "croupier: unknown state 'x'\n")


async def test_a_table_in_a_pipe(operator: ScriptedOperator) -> None:
    done = await croupier("agents", "--master", operator.address)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        (
            "HOST  AGENT  STATE      TASKS  USED  OFFERED  TOTAL             ATTRIBUTES  ISOLATION"
            "  CONNECTED"
        ),
        (
            "h     a0     connected      0  -     -        cpus:1.5;mem:1GB  -           none     "
            "          -"
        ),
        (
            "h     a1     connected      0  -     -        cpus:1.5;mem:1GB  -           none     "
            "          -"
        ),
    ]


async def test_json(operator: ScriptedOperator) -> None:
    done = await croupier("agents", "--json", CROUPIER_MASTER=operator.address)
    assert (done.code, done.err) == (0, "")
    agents = json.loads(done.out)
    assert [agent["agent_id"] for agent in agents] == ["a0", "a1"]
    assert agents[0]["total"]["milli"] == {"cpus": 1500, "mem": 1_024_000}


async def test_all_pages_are_printed_as_one_list(operator: ScriptedOperator) -> None:
    page = operator.answers[pb.ListAgentsRequest]
    operator.answers[pb.ListAgentsRequest] = [page, pb.ListAgentsResponse(), page]
    done = await croupier("agents", "--master", operator.address)
    assert [line.split()[1] for line in done.out.splitlines()] == ["AGENT", "a0", "a1", "a0", "a1"]
    done = await croupier("agents", "--json", "--master", operator.address)
    agents = json.loads(done.out)
    assert [agent["agent_id"] for agent in agents] == ["a0", "a1", "a0", "a1"]
    assert done.out == json.dumps(agents, indent=2) + "\n"


async def test_a_repeated_page_is_an_error(operator: ScriptedOperator) -> None:
    operator.answers[pb.ListAgentsRequest].next_page_token = "again"
    done = await croupier("agents", "--json", "--master", operator.address)
    assert done.code == 1
    assert "repeats a page" in done.err


@pytest.mark.parametrize("noun", ["frameworks", "tasks", "offers", "roles"])
async def test_empty_lists(operator: ScriptedOperator, noun: str) -> None:
    done = await croupier(noun, "--master", operator.address)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("no ")
    assert await croupier(noun, "--json", "--master", operator.address) == Ended(0, "[]\n", "")


async def test_the_tasks_of_one_framework(operator: ScriptedOperator) -> None:
    await croupier("tasks", "--framework", "f1", "--master", operator.address)
    assert pb.ListTasksRequest(framework_id="f1") in operator.asked


async def test_commands_are_listed_with_a_flag(operator: ScriptedOperator) -> None:
    status = task_pb2.TaskStatus(state=task_pb2.TASK_RUNNING)
    command = task_pb2.Command(shell="sleep 9")
    with_command, without = (
        task_pb2.TaskInfo(task_id="t1", command=command),
        task_pb2.TaskInfo(task_id="t1"),
    )
    operator.answers[pb.ListTasksRequest] = pb.ListTasksResponse(
        tasks=[pb.TaskView(task=with_command, status=status)]
    )
    done = await croupier("tasks", "--commands", "--master", operator.address)
    assert operator.asked[-1] == pb.ListTasksRequest(with_commands=True)
    assert done.out.splitlines()[0].endswith("  COMMAND")
    assert done.out.endswith("  sleep 9\n")
    operator.answers[pb.ListTasksRequest] = pb.ListTasksResponse(
        tasks=[pb.TaskView(task=without, status=status)]
    )
    done = await croupier("tasks", "--json", "--master", operator.address)
    (task,) = json.loads(done.out)
    assert (task["command"], task["shell"], task["labels"]) == (None, None, None)


async def test_kill(operator: ScriptedOperator) -> None:
    operator.answers[pb.KillTaskRequest] = pb.KillTaskResponse(
        task=pb.TaskView(
            framework_id="f1",
            task=task_pb2.TaskInfo(task_id="t1"),
            status=task_pb2.TaskStatus(state=task_pb2.TASK_KILLING),
        )
    )
    argv = ["kill", "t1", "--framework", "f1", "--grace", "0.5", "--master", operator.address]
    assert await croupier(*argv) == Ended(0, "task t1 of framework f1 was asked to end\n", "")
    assert operator.asked[-1] == pb.KillTaskRequest(
        task_id="t1", framework_id="f1", kill_policy=task_pb2.KillPolicy(grace_ms=500)
    )


async def test_an_unknown_task_is_exit_code_1(operator: ScriptedOperator) -> None:
    operator.answers[pb.KillTaskRequest] = NotFound("no task 't9'")
    done = await croupier("kill", "t9", "--master", operator.address)
    assert done == Ended(1, "", "croupier: no task 't9'; croupier tasks lists the tasks\n")


async def test_ids_in_a_tasks_environment_are_not_flags(operator: ScriptedOperator) -> None:
    """A task's environment has its ids; a bare `croupier kill` must not kill the task."""
    done = await croupier("kill", CROUPIER_TASK_ID="t1", CROUPIER_MASTER=operator.address)
    assert done.code == 2
    assert operator.asked == []


async def test_an_unreachable_master_is_one_line_at_once() -> None:
    done = await croupier("agents", "--master", "127.0.0.1:9")
    line = "croupier: cannot reach a master at 127.0.0.1:9 (is one running there?)\n"
    assert done == Ended(1, "", line)


async def test_a_silent_master_is_one_line_within_five_seconds() -> None:
    async with serving(ScriptedOperator()) as operator:
        begun = time.monotonic()
        assert (await croupier("agents", "--master", operator.address)).code == 0
        answered = time.monotonic()
        operator.hangs = True
        done = await croupier("agents", "--master", operator.address)
        silent_s, answered_s = time.monotonic() - answered, answered - begun
    line = f"croupier: the master at {operator.address} did not answer within 3.5 s\n"
    assert done == Ended(1, "", line)
    # A command that is answered takes 0.5 s, and more on a machine with other work.
    assert silent_s - max(answered_s - 0.5, 0.0) < 5.0


async def test_a_server_that_is_not_a_master_is_reported() -> None:
    server = make_server()
    address = f"127.0.0.1:{bind(server, Address('127.0.0.1', 0))}"
    await server.start()
    done = await croupier("agents", "--master", address)
    await server.stop(None)
    assert done == Ended(1, "", f"croupier: the server at {address} is not a Croupier master\n")


async def test_the_masters_error_is_printed(operator: ScriptedOperator) -> None:
    operator.answers[pb.ListAgentsRequest] = Unavailable("the master is recovering")
    done = await croupier("agents", "--master", operator.address)
    assert done == Ended(1, "", "croupier: the master is recovering\n")


async def test_a_closed_pipe_is_not_an_error(operator: ScriptedOperator) -> None:
    views = operator.answers[pb.ListAgentsRequest].agents
    many = pb.ListAgentsResponse(agents=list(views) * 4_000)
    operator.answers[pb.ListAgentsRequest] = many
    async with started("agents", "--master", operator.address) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        await process.stdout.readline()
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        assert await process.stderr.read() == b""
        assert await process.wait() == 141


@pytest.mark.parametrize(
    "argv",
    [
        ["nosuch"],
        ["agents", "--colour"],
        ["agents", "--master", "here:there"],
        ["kill"],
        ["kill", "a/b"],
        ["kill", "t1", "--grace", "-1"],
        ["run", "--env", "x", "--", "true"],
        ["run", "-n", "0", "--", "true"],
        ["run", "--role", "a//b", "--", "true"],
        ["local", "--agents", "0"],
        ["local", "--master-port", "99999"],
        ["local", "--cpus", "nan"],
        ["weights", "set", "ads"],
        ["weights", "set", "ads", "0"],
        ["weights", "set", "ads", "-1"],
        ["weights", "set", "ads", "nan"],
        ["weights", "set", "a//b", "1"],
        ["weights", "set", "ads", "1", "--resource", "cpus"],
        ["weights", "nosuch"],
        ["quota", "set", "ads"],
        ["quota", "set", "ads", "--limit", "cpus"],
        ["quota", "set", "ads", "--limit", "ports:[1-2]"],
        ["quota", "set", "ads", "--preemption", "maybe"],
        ["quota", "get"],
        ["why"],
    ],
)
async def test_bad_flags_are_one_line_and_exit_code_2(argv: list[str]) -> None:
    done = await croupier(*argv, CROUPIER_MASTER="127.0.0.1:9")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("croupier: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["local", "--help"]])
async def test_help_needs_nothing_heavy(argv: list[str]) -> None:
    done = await croupier(*argv, PYTHONPROFILEIMPORTTIME="1")
    assert done.code == 0
    imported = {line.rpartition("|")[2].strip() for line in done.err.splitlines()}
    assert "cyclopts" in imported
    assert imported.isdisjoint({"grpc", "google.protobuf", "aiohttp", "structlog"})


def task_of(framework_id: str) -> pb.TaskView:
    info = task_pb2.TaskInfo(task_id="t1", command=task_pb2.Command(shell="make"))
    status = task_pb2.TaskStatus(state=task_pb2.TASK_FINISHED, exit_code=0)
    return pb.TaskView(framework_id=framework_id, agent_id="a1", task=info, status=status)


@pytest.mark.parametrize("words", [("task", "show"), ("describe", "task")])
async def test_one_task(operator: ScriptedOperator, words: tuple[str, ...]) -> None:
    operator.answers[pb.ListTasksRequest] = pb.ListTasksResponse(tasks=[task_of("f1")])
    done = await croupier(*words, "t1", "--master", operator.address)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == "task t1: FINISHED, code 0"
    assert "  command: make" in done.out.splitlines()
    done = await croupier(*words, "t1", "--json", "--master", operator.address)
    assert json.loads(done.out)["framework_id"] == "f1"


async def test_a_task_that_is_not_one(operator: ScriptedOperator) -> None:
    operator.answers[pb.ListTasksRequest] = pb.ListTasksResponse()
    done = await croupier("task", "show", "t1", "--master", operator.address)
    assert (done.code, "no task 't1'" in done.err) == (1, True)
    both = pb.ListTasksResponse(tasks=[task_of("f1"), task_of("f2")])
    operator.answers[pb.ListTasksRequest] = both
    done = await croupier("task", "show", "t1", "--master", operator.address)
    assert done.code == 1
    assert "several frameworks have a task 't1': f1, f2; name one by --framework" in done.err
    running = task_of("f3")
    running.status.state = task_pb2.TASK_RUNNING
    both.tasks.append(running)
    done = await croupier("task", "show", "t1", "--master", operator.address)
    assert done.out.splitlines()[0] == "task t1: RUNNING, code 0"
    assert "use so far is unknown: " in done.out
