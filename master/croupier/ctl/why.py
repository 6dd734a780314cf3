"""Explaining why a framework gets no more offers.

Rule: every cause is printed in words and numbers, with what a person can do about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from croupier.ctl.connection import Master
from croupier.ctl.flags import Target
from croupier.ctl.lists import find_agent, find_framework
from croupier.ctl.operation import run
from croupier.ctl.terminal import print_lines
from croupier.ctl.views.amounts import View, demand_text, many
from croupier.ctl.views.framework import framework_view
from croupier.ctl.views.role import preemption_text, resource_weights_text, role_view
from croupier.v1 import operator_pb2 as pb

# Policies that compare shares; entitlements are for drf alone.
_OF_SHARES = frozenset({"drf", "yarn-drf", "asset"})
# What to do, by the master's word for the cause. `{role}` is the role whose limit or guarantee
# it is.
_ADVICE = {
    "filtered": "its own refusals: it can revive, or refuse for a shorter time",
    "does not fit": "ask for less at once, or add agents that have as much",
    "below the minimum useful amount": "declare a demand to be offered as little as that",
    "constraint": "loosen the demand's constraints, or add agents that meet them",
    "limit": "croupier quota set {role} --limit ..., or wait until tasks of {role} end",
    "guarantee": "it is owed first: croupier quota get {role}",
    "in use": "wait for tasks to end, or add agents",
    "earmarked": "it was freed for another framework; what that leaves is dealt again",
    "scarce": "a demand that names the scarce resource is dealt these agents",
    "suppressed": "the framework asked for no offers: it has to revive",
    "disconnected": "start the framework again, or mend its connection",
    "demand is met": "the framework has to declare more demand",
    "no agents": "start agents: croupier agents",
    "agent is being drained": "croupier agent reactivate AGENT offers it again",
    "agent is deactivated": "croupier agent reactivate AGENT offers it again",
    "agent is unhealthy": "mend what the agent names; it is offered again once it can launch tasks",
    "agent is away": "the agent has to come back: croupier agents",
}


def explain(target: Target, framework: str, agent: str, *, as_json: bool) -> None:
    """Print why the framework gets no more offers, or none of `agent`.

    Each may be an id, or a name or hostname that only one has.

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
    found = {
        "framework": framework_view(answer.framework),
        "roles": [role_view(role) for role in answer.roles],
        "reasons": [reason_view(reason) for reason in answer.reasons],
        # Masters of older releases do not name it; drf is the default.
        "policy": answer.policy or "drf",
    }
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_lines(*why_lines(found, agent))


def reason_view(reason: pb.PassedOver) -> View:
    """Return one cause for which a framework was passed over."""
    return {
        "cause": reason.cause,
        "role": reason.role,
        "agents": reason.agents,
        "about_agent_id": reason.about_agent_id or None,
        "about_role": reason.about_role or None,
        "detail": reason.detail,
    }


def why_lines(told: View, agent: str) -> Iterator[str]:
    """What a person is told; `agent` is the agent in question, or empty."""
    policy = told["policy"]
    yield from _framework_lines(told["framework"], policy)
    for role in told["roles"]:
        yield f"role {role['role']}: {', '.join(_role_parts(role, policy)) or 'no settings'}"
    yield ""
    yield from _reason_lines(told, agent)


def _framework_lines(framework: View, policy: str) -> Iterator[str]:
    name, framework_id = framework["name"], framework["framework_id"]
    yield f"framework {name} ({framework_id}): {framework['state']}"
    holds = framework["used"]["text"] or "nothing"
    holds = f"  holds {holds} in {many(framework['tasks'], 'task')}"
    share = f"; its share is {framework['share']:.3f}" if policy in _OF_SHARES else ""
    due = f", and it is entitled to {framework['entitlement']:.3f}" if policy == "drf" else ""
    yield holds + share + due
    if framework["offers"]:
        offered, offers = framework["offered"]["text"], many(framework["offers"], "offer")
        yield f"  is offered {offered} in {offers}"
    wishes = (
        ", ".join(map(demand_text, framework["demands"])) or "whatever is free, in whole offers"
    )
    asleep = framework["suppressed_roles"]
    none = " (but no offers)" if framework["suppressed"] else ""
    none = f" (but no offers in {', '.join(asleep)})" if asleep and not none else none
    yield f"  wants {wishes}{none}"


def _role_parts(role: View, policy: str) -> Iterator[str]:
    weights = resource_weights_text(role["resource_weights"])
    if policy != "fifo":
        yield f"weight {role['weight']:g}" + (f" ({weights})" if weights else "")
    if policy in _OF_SHARES:
        yield f"share {role['share']:.3f}"
    if policy == "drf":
        yield f"entitled to {role['entitlement']:.3f}"
    if role["guarantee"]["milli"]:
        yield f"guaranteed {role['guarantee']['text']}"
    if role["limit"]["milli"]:
        yield f"limited to {role['limit']['text']}"
    if role["guarantee"]["milli"] or role["limit"]["milli"]:
        yield f"uses {role['used']['text'] or 'nothing'}" + (
            f" and is offered {role['offered']['text']}" if role["offered"]["text"] else ""
        )
    if role["preemption"] is not None:
        yield f"preemption {preemption_text(role['preemption'])}"


def _reason_lines(told: View, agent: str) -> Iterator[str]:
    reasons, roles = told["reasons"], told["framework"]["roles"]
    if not reasons:
        yield "Nothing has kept it from more since it was last dealt to."
        return
    yield f"It is not dealt more of {agent}:" if agent else "It is not dealt more:"
    for reason in reasons:
        role = f" in role {reason['role']}" if len(roles) > 1 else ""
        agents = "" if agent or not reason["agents"] else f", {many(reason['agents'], 'agent')}"
        yield f"  {reason['cause']}{role}{agents}: {reason['detail']}"
        advice = _advice(reason, told["policy"])
        if advice:
            yield f"    -> {advice}"


def _advice(reason: View, policy: str) -> str:
    """What a person can do about it; empty if nothing is known."""
    own, about = reason["role"], reason["about_role"] or reason["role"]
    if reason["cause"] != "outranked":
        return _ADVICE.get(reason["cause"], "").format(role=about)
    if policy == "fifo":
        return "first come, first served (--policy fifo): it gets what those before it cannot use"
    mine = _parting(own, about)
    if not mine:
        return "frameworks of one role are dealt to alike: a role of its own may have more weight"
    more = f"more weight: croupier weights set {mine} ..."
    if policy == "random":
        return f"turns are drawn by lot (--policy random), in proportion to weights; {more}"
    return f"others hold less of what is their due; {more}"


def _parting(own: str, other: str) -> str:
    """The role at or above `own` whose weight counts against `other`; empty if there is none."""
    mine, theirs = own.split("/"), other.split("/")
    common = 0
    while common < min(len(mine), len(theirs)) and mine[common] == theirs[common]:
        common += 1
    return "/".join(mine[: common + 1]) if common < len(mine) else ""
