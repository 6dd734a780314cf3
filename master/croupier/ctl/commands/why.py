"""`croupier why`."""

from __future__ import annotations

from croupier.api.objects import as_object
from croupier.cli.connection import Master, run
from croupier.cli.flags import LOCAL, FrameworkName, JsonFlag, MasterFlag
from croupier.ctl.app import app
from croupier.ctl.lists import find_agent, find_framework
from croupier.ctl.operation import print_result
from croupier.ctl.views.why import why_lines
from croupier.v1 import operator_pb2 as pb


@app.command
def why(
    framework: FrameworkName,
    /,
    *,
    agent: str = "",
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Explain why a framework gets no more offers, and what to do about it.

    Parameters
    ----------
    agent
        Id or hostname of an agent: explain why the framework is not offered more of that agent.
    """

    async def asked(leader: Master) -> pb.ExplainResponse:
        framework_id = (await find_framework(leader, framework))["framework_id"]
        agent_id = (await find_agent(leader, agent))["agent_id"] if agent else ""
        request = pb.ExplainRequest(framework_id=framework_id, agent_id=agent_id)
        return await leader.ask(leader.service.Explain, request)

    found = as_object(run(master, asked))
    print_result(found, *why_lines(found, agent), as_json=as_json)
