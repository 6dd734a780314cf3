"""What commands ask and say before they change something, and why tasks are refused."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from croupier.cli.connection import Master, Refused
from croupier.cli.flags import CHANGE, Change
from croupier.ctl import operation, task_output
from croupier.ctl.lists import find_agent
from croupier.ctl.operation import Preview, agent_use, confirm, teardown_preview
from croupier.ctl.task_output import TaskName, advising
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound, Unavailable
from croupier.net.address import Address
from croupier.net.transport import make_channel
from croupier.v1 import operator_pb2 as pb
from croupier.v1.framework_pb2 import AgentDescription, FrameworkInfo


def agent(agent_id: str, hostname: str, state: str) -> pb.AgentView:
    return pb.AgentView(agent=AgentDescription(agent_id=agent_id, hostname=hostname), state=state)


class Lists:
    """Pretend lists. Agents A1 and A2 run a task each."""

    address = "a:1"

    def __init__(self) -> None:
        self.service = SimpleNamespace(
            ListAgents=self._agents, ListFrameworks=self._frameworks, ListTasks=self._tasks
        )

    async def ask(
        self, question: Callable[[Any], Coroutine[Any, Any, Any]], request: object
    ) -> object:
        return await question(request)

    async def _agents(self, _: pb.ListAgentsRequest) -> pb.ListAgentsResponse:
        agents = [
            agent("A1", "h1", "connected"),
            agent("A2", "h2", "unreachable"),
            agent("A3", "h2", "connected"),
            agent("A4", "h4", "connected"),
        ]
        # As of an agent of a newer release, which has an attribute of an unknown kind.
        agents[-1].agent.attributes.add(name="zone")
        return pb.ListAgentsResponse(agents=agents)

    async def _frameworks(self, _: pb.ListFrameworksRequest) -> pb.ListFrameworksResponse:
        framework = FrameworkInfo(framework_id="F1", name="train")
        return pb.ListFrameworksResponse(frameworks=[pb.FrameworkView(framework=framework)])

    async def _tasks(self, request: pb.ListTasksRequest) -> pb.ListTasksResponse:
        tasks = [pb.TaskView(agent_id=each) for each in ("A1", "A2") if each == request.agent]
        return pb.ListTasksResponse(tasks=tasks)


def master() -> Master:
    return cast("Master", Lists())


async def test_a_teardown_of_queued_tasks_names_no_agents() -> None:
    lists = Lists()
    queued = pb.ListTasksResponse(tasks=[pb.TaskView(framework_id="F1")])
    lists.service.ListTasks = lambda _: asyncio.sleep(0, queued)
    preview = await teardown_preview(cast("Master", lists), "train")
    assert preview.lines[-1] == "  1 task is killed; it holds nothing"


async def test_only_tasks_of_the_agent_are_asked_for() -> None:
    assert len((await agent_use(master(), "A1")).tasks) == 1


async def test_agents_of_one_hostname_are_named_with_their_states() -> None:
    with pytest.raises(Conflict, match=r"A2 \(unreachable\), A3 \(connected\)"):
        await find_agent(master(), "h2")


async def test_an_unknown_agent_is_looked_for_by_id_and_hostname() -> None:
    with pytest.raises(NotFound, match="no agent has the id or hostname 'h9'"):
        await find_agent(master(), "h9")


async def test_an_agent_that_cannot_be_shown_hides_no_other() -> None:
    assert (await find_agent(master(), "h1"))["agent_id"] == "A1"
    assert (await teardown_preview(master(), "train")).object_id == "F1"


# Confirmation of operations that cannot be undone.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


FOUND = Preview("m-A1", {"agent": "m-A1"}, ["agent m-A1 (h1) has 2 tasks"])


async def preview(master: Master) -> Preview:
    return FOUND


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "run", lambda *_: FOUND)


def confirmed(
    monkeypatch: pytest.MonkeyPatch,
    typed: io.StringIO,
    change: Change = CHANGE,
    *,
    yes: bool = False,
) -> str | None:
    monkeypatch.setattr("sys.stdin", typed)
    return confirm("h1", preview, change, yes=yes)


@pytest.mark.usefixtures("_offline")
def test_a_yes_confirms_the_object_that_was_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert confirmed(monkeypatch, Terminal("YES \n")) == "m-A1"
    assert "agent m-A1 (h1) has 2 tasks\ntype yes to continue: " in capsys.readouterr().out


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize("typed", ["", "y\n", "no\n"])
def test_any_other_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    with pytest.raises(Conflict, match="nothing was changed"):
        confirmed(monkeypatch, Terminal(typed))


@pytest.mark.usefixtures("_offline")
def test_without_a_terminal_a_flag_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="--yes"):
        confirmed(monkeypatch, io.StringIO("yes\n"))
    assert confirmed(monkeypatch, io.StringIO(), yes=True) == "h1"


@pytest.mark.usefixtures("_offline")
def test_a_dry_run_confirms_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert confirmed(monkeypatch, Terminal("yes\n"), Change(dry_run=True), yes=True) is None
    assert confirmed(monkeypatch, Terminal("yes\n"), Change(dry_run=True, as_json=True)) is None
    assert '"dry_run": true' in capsys.readouterr().out


# Refusals of requests about a task, with the next step.


ADDRESS = Address("127.0.0.1", 1)
MISSING = "no task 't1' of framework web"
TASKS = "croupier tasks lists the tasks"


@pytest.mark.parametrize(
    ("found", "framework_id", "advice"),
    [
        ({"framework_id": "F1"}, "", TASKS),
        ({"framework_id": "web"}, "web", TASKS),
        (Unavailable("gone"), "web", TASKS),
        (NotFound("no framework 'web'"), "web", "no framework 'web'"),
    ],
)
async def test_a_missing_task_is_told_with_what_is_wrong_with_its_framework(
    monkeypatch: pytest.MonkeyPatch, found: Any, framework_id: str, advice: str
) -> None:
    async def find_framework(master: Master, named: str) -> Any:
        if isinstance(found, CroupierError):
            raise found
        return found

    monkeypatch.setattr(task_output, "find_framework", find_framework)
    assert await told(NotFound(MISSING), TaskName("t1", framework_id)) == f"{MISSING}; {advice}"


async def test_other_refusals_are_told_with_the_next_step() -> None:
    task = TaskName("t1")
    assert (await told(NotFound("no file 'x'"), task)).endswith("croupier files t1 lists the files")
    several = "several frameworks have a task 't1': F1, F2; name one"
    assert await told(Refused(several), task) == f"{several} by --framework"
    assert await told(Refused("bad path"), task) == "bad path"


async def told(error: CroupierError, task: TaskName) -> str:
    async with make_channel(ADDRESS) as channel:
        with pytest.raises(type(error)) as raised:
            async with advising(task, Master(ADDRESS, channel)):
                raise error
    return str(raised.value)
