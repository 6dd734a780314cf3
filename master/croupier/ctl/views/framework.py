"""Frameworks, as commands show them, and why they get no more offers.

Rule: every cause is printed in words and numbers, with advice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from croupier.cli.table import Column, Table, age, amount, number, object_id, text
from croupier.cli.terminal import View, demand_text, many, named, running
from croupier.ctl.views.role import (
    factor_text,
    min_run_text,
    preemption_text,
    resource_weights_text,
)
from croupier.model.durations import duration_text, span_text

# Policies that compare shares; only drf has entitlements.
_OF_SHARES = frozenset({"drf", "yarn-drf", "asset"})
# Hosts that are named.
MOST_HOSTS = 3
# Advice by the master's name of the cause. `{role}` has the limit or guarantee.
_ADVICE = {
    "filtered": "it declined them, or its offers expired: it can revive, or decline for less time",
    "unanswered offers": "it has to accept or decline offers within 5 s",
    "does not fit": "demand smaller units, or add larger agents",
    "below the minimum useful amount": "declare a demand: it is offered even small amounts",
    "constraint": "relax the demand's constraints, or add agents that meet them",
    "minimum run time": "wait for it, or a shorter one: croupier quota set {role} --min-run ...",
    "budget": "wait for the next period, or more: croupier quota set {role} --budget ...",
    "limit": "croupier quota set {role} --limit ..., or wait until tasks of {role} end",
    "guarantee": "{role} is below its guarantee and comes first: croupier quota get {role}",
    "in use": "wait for tasks to end or offers to be answered, or add agents",
    "earmarked": "it is reserved for another framework; what that leaves is offered again",
    "reserved": "wait for its end, or give tasks a max_completion that ends before it begins",
    "scarce": "declare a demand for the scarce resource to be offered these agents",
    "held for another": "end one that is no volume: croupier holds, croupier hold release ID",
    "its reservations": "it is offered these agents alone once they begin: croupier reservations",
    "its holds": "it gets more if it uses or releases them",
    "suppressed": "the framework suppressed its offers: it has to revive",
    "disconnected": "start the framework again, or repair its connection",
    "demand is met": "it gets more once it submits tasks, or declares more demand and revives",
    "no agents": "start agents, or reactivate them: croupier agents lists them",
    "agent is being drained": "croupier agent reactivate AGENT offers it again",
    "agent is deactivated": "croupier agent reactivate AGENT offers it again",
    "agent is unhealthy": "repair what the agent reports; it is offered again once it is healthy",
    "agent is away": "start the agent, or repair its connection: croupier agents",
}


def state_text(framework: View) -> str:
    """Return the framework's state, such as `disconnected, removed in 9 min 20 s`."""
    words = [framework["state"]]
    if suppresses(framework):
        words.append("suppressed")
    if framework["removed_in_s"] is not None:
        words.append(f"removed in {duration_text(framework['removed_in_s'])}")
    return ", ".join(words)


def suppresses(framework: View) -> bool:
    """Return whether the framework suppressed offers while it has declared demand."""
    counts = [each["count"] for each in framework["demands"]]
    # A group or a gang is one unit of demand.
    waiting = framework["queued"] - framework["lined_up"] - framework["queued_in_groups"]
    waiting += framework["queued_groups"]
    return framework["suppressed"] and (None in counts or sum(counts) > waiting)


def wants_text(framework: View) -> str:
    """Return the framework's demand; empty if it takes whole offers."""
    wanted = [each for each in framework["demands"] if each["count"] != 0]
    if wanted:
        return ", ".join(map(demand_text, wanted))
    return "nothing more" if framework["demands"] or framework["suppressed"] else ""


FRAMEWORKS = Table(
    (
        text("NAME", "name"),
        object_id("FRAMEWORK", "framework_id", 1),
        Column("ROLE", lambda view: ",".join(view["roles"]), rank=5),
        Column("STATE", state_text, rank=4),
        number("SHARE", "share", 2, form=".3f"),
        Column("RUNNING", lambda view: str(running(view)), is_number=True, rank=3),
        number("QUEUED", "queued", 3),
        number("OFFERS", "offers", 9),
        amount("USED", "used", 6),
        amount("OFFERED", "offered", 10),
        Column("WANTS", lambda view: wants_text(view) or "whole offers", rank=8),
        age("CONNECTED", "age_s", 7),
    ),
    "no frameworks are registered",
)


def why_lines(found: View, agent: str) -> Iterator[str]:
    """Yield the explanation; `agent` is empty unless it is about one agent."""
    policy = found["policy"]
    yield from framework_lines(found["framework"], policy, hosts=found["lined_up_hosts"])
    for role in found["roles"]:
        yield f"role {role['role']}: {', '.join(_role_parts(role, policy)) or 'no settings'}"
    yield ""
    yield from reason_lines(found, agent)
    yield from forecast_lines(found["forecasts"])


def forecast_lines(forecasts: Sequence[View]) -> Iterator[str]:
    """Yield when tasks may start."""
    if forecasts:
        yield ""
        yield "Expected start:"
    for each in forecasts:
        what = f"  <{each['unit']['text']}> in role {each['role']}"
        if each["problem"]:
            yield f"{what}: cannot be foretold: {each['problem']}"
            continue
        late = each["late_s"]
        median = f"in about {span_text(each['median_s'])}" if each["median_s"] else "at once"
        yield f"{what}: {median}" + (
            f", and by {span_text(late)} in 9 of 10 rehearsals" if late else ""
        )


def framework_lines(
    framework: View, policy: str, state: str = "", hosts: Sequence[str] = ()
) -> Iterator[str]:
    """Yield what a framework holds and wants; its tasks are lined up at `hosts`.

    `state` replaces the name of its state.
    """
    name = named(framework["name"], framework["framework_id"])
    yield f"framework {name}: {state or framework['state']}"
    holds = framework["used"]["text"] or "nothing"
    holds = f"  holds {holds} in {many(running(framework), 'task')}"
    beside = framework["held"]["text"]
    holds += f", and {beside} more in holds and volumes" if beside else ""
    share = f"; its share is {framework['share']:.3f}" if policy in _OF_SHARES else ""
    entitled = f", and it is entitled to {framework['entitlement']:.3f}" if policy == "drf" else ""
    yield holds + share + entitled
    if framework["offers"]:
        offered, offers = framework["offered"]["text"], many(framework["offers"], "offer")
        yield f"  is offered {offered} in {offers}"
    roles = framework["suppressed_roles"]
    none = " (but no offers)" if suppresses(framework) else ""
    if roles and not framework["suppressed"]:
        none = f" (but no offers in {', '.join(roles)})"
    yield f"  wants {wants_text(framework) or 'whatever is free, in whole offers'}{none}"
    if framework["queued"]:
        lined = f", {_lined_up(framework['lined_up'], hosts)}" if framework["lined_up"] else ""
        grouped = f", {_grouped(framework)}" if framework["queued_groups"] else ""
        yield f"  {many(framework['queued'], 'task')} queued{lined}{grouped}"


def _grouped(framework: View) -> str:
    number = framework["queued_groups"]
    units = "1 group or gang" if number == 1 else f"{number} groups and gangs"
    return f"{framework['queued_in_groups']} of them in {units}, each placed as a whole"


def _lined_up(number: int, hosts: Sequence[str]) -> str:
    more = [many(len(hosts) - MOST_HOSTS, "other")] if len(hosts) > MOST_HOSTS else []
    named = ", ".join([*hosts[:MOST_HOSTS], *more])
    at = f"{'hosts' if len(hosts) > 1 else 'host'} {named}" if hosts else "agents"
    return f"{number} of them lined up at {at}, behind tasks like them"


def _role_parts(role: View, policy: str) -> Iterator[str]:
    weights = resource_weights_text(role)
    if policy != "fifo":
        yield f"weight {role['weight']:g}" + (f" ({weights})" if weights else "")
        if role["past_use"]:
            yield f"times {factor_text(role)} for past use"
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
        yield f"preemption {preemption_text(role)}"
    if role["min_run_s"] is not None:
        yield f"minimum run time {min_run_text(role)}"


def reason_lines(found: View, agent: str) -> Iterator[str]:
    """Yield each cause with advice; `agent` is empty unless it is about one agent."""
    reasons, roles = found["reasons"], found["framework"]["roles"]
    if not reasons:
        yield "Nothing keeps it from more."
        return
    if all(reason["cause"] == "demand is met" for reason in reasons):
        yield "It wants nothing more:"
    else:
        yield f"It gets nothing more of {agent}:" if agent else "It gets nothing more:"
    for reason in reasons:
        role = f" in role {reason['role']}" if len(roles) > 1 else ""
        agents = "" if agent or not reason["agents"] else f", {many(reason['agents'], 'agent')}"
        yield f"  {reason['cause']}{role}{agents}: {reason['detail']}"
        advice = _advice(reason, found["policy"])
        if advice:
            yield f"    -> {advice}"


def _advice(reason: View, policy: str) -> str:
    """Return advice about the cause; empty if there is none."""
    own, about = reason["role"], reason["about_role"] or reason["role"]
    if "has to run on agent" in reason["detail"]:
        return "only that agent has its executor or volume: demand no more than it can have there"
    if reason["cause"] != "outranked":
        return _ADVICE.get(reason["cause"], "").format(role=about)
    if policy == "fifo":
        return "first come, first served (--policy fifo): it gets what earlier frameworks leave"
    mine = _competing_role(own, about)
    if not mine:
        return "frameworks of one role share alike: a role of its own may have more weight"
    more = f"more weight: croupier weights set {mine} ..."
    if policy == "random":
        return f"turns are random (--policy random), in proportion to weights; {more}"
    return f"the others hold less of their entitlement; {more}"


def _competing_role(own: str, other: str) -> str:
    """Return the role at or above `own` whose weight competes with `other`; empty if none does."""
    mine, theirs = own.split("/"), other.split("/")
    common = 0
    while common < min(len(mine), len(theirs)) and mine[common] == theirs[common]:
        common += 1
    return "/".join(mine[: common + 1]) if common < len(mine) else ""
