"""Explaining why a framework gets no more offers."""

from __future__ import annotations

from croupier.api.objects import as_object
from croupier.cli.connection import Master, run
from croupier.cli.flags import Target
from croupier.ctl.lists import find_agent, find_framework
from croupier.ctl.operation import print_result
from croupier.ctl.views.why import why_lines
from croupier.v1 import operator_pb2 as pb


def explain(target: Target, framework: str, agent: str, *, as_json: bool) -> None:
    """Print why the framework gets no more offers, or none of `agent`.

    Each is an id, or a unique name or hostname.

    Raises:
        NotFound: if there is no such framework or agent.
        Conflict: if several have that name.
    """

    async def asked(master: Master) -> pb.ExplainResponse:
        framework_id = (await find_framework(master, framework))["framework_id"]
        agent_id = (await find_agent(master, agent))["agent_id"] if agent else ""
        request = pb.ExplainRequest(framework_id=framework_id, agent_id=agent_id)
        return await master.ask(master.service.Explain, request)

    answer = run(target, asked)
    found = as_object(answer)
    print_result(found, *why_lines(found, agent), as_json=as_json)
