"""`croupier framework` and `croupier why`."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from croupier.api.objects import as_object
from croupier.cli.connection import Master, run
from croupier.cli.flags import CHANGE, LOCAL, Change, FrameworkName, JsonFlag, MasterFlag, YesFlag
from croupier.cli.terminal import View, many, named
from croupier.ctl.app import app, family
from croupier.ctl.lists import find_agent, find_framework
from croupier.ctl.operation import confirm, print_result, teardown_preview
from croupier.ctl.views.framework import why_lines
from croupier.model.errors import NotFound
from croupier.v1 import operator_pb2 as pb

framework = family("framework")


@framework.command(name="teardown")
def teardown(name: FrameworkName, /, *, yes: YesFlag = False, change: Change = CHANGE) -> None:
    """Remove a framework permanently, and kill its tasks.

    Use this if the framework's program will not come back. Its resources are offered again as its
    tasks end, without waiting for its failover timeout. The master refuses a program that returns
    under this id.
    """

    async def torn_down(leader: Master, given: str) -> tuple[View, str]:
        framework_id, known = given, ""
        with suppress(NotFound):
            # A removed framework is not listed, but the master knows its id.
            found = await find_framework(leader, given)
            framework_id, known = found["framework_id"], found["name"]
        request = pb.TeardownFrameworkRequest(framework_id=framework_id)
        left = (await leader.ask(leader.service.TeardownFramework, request)).tasks
        ending = f"; {many(left, 'task')} of it will end" if left else ""
        view = {"framework_id": framework_id, "tasks_left": left}
        return view, f"framework {named(known, framework_id)} is torn down{ending}"

    confirmed = confirm(name, partial(teardown_preview, named=name), change, yes=yes)
    if confirmed is not None:
        view, line = run(change.master, partial(torn_down, given=confirmed))
        print_result(view, line, as_json=change.as_json)


@app.command
def why(
    framework: FrameworkName,
    /,
    *,
    agent: str = "",
    task: str = "",
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Explain why a framework gets no more offers, and what to do about it.

    It also foretells when the next of its waiting tasks start, from how long tasks like the running
    ones took.

    Args:
        agent: Id or hostname of an agent: explain why the framework is not offered more of that
            agent.
        task: Id of a queued task of the framework: foretell when that one starts.
    """

    async def asked(leader: Master) -> pb.ExplainResponse:
        framework_id = (await find_framework(leader, framework))["framework_id"]
        agent_id = (await find_agent(leader, agent))["agent_id"] if agent else ""
        request = pb.ExplainRequest(
            framework_id=framework_id,
            agent_id=agent_id,
            with_forecasts=not agent or bool(task),
            task_id=task,
        )
        return await leader.ask(leader.service.Explain, request)

    found = as_object(run(master, asked))
    print_result(found, *why_lines(found, agent), as_json=as_json)
