"""`croupier doctor`, and its checks by calls to the leading master."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from typing import Final

from croupier.api.objects import as_object
from croupier.cli.connection import Master, connected
from croupier.cli.flags import LOCAL, JsonListFlag, MasterFlag, Target
from croupier.cli.terminal import View, many, named, print_lines
from croupier.ctl.app import app
from croupier.ctl.doctor import (
    DAY_S,
    SOON_S,
    Finding,
    credential_findings,
    fail,
    master_findings,
    ok,
    warn,
)
from croupier.ctl.lists import all_of
from croupier.model.access import AGENT_USER
from croupier.model.durations import duration_text
from croupier.model.errors import CroupierError, InvalidRequest, Unavailable
from croupier.model.isolation import Feature
from croupier.v1 import access_pb2 as pb
from croupier.v1 import operator_pb2


@app.command(name="doctor")
def doctor(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> int:
    """Check credentials, certificates, clocks, masters and agents from this machine.

    Each check is one line: ok, warn or fail, and what to do.

    Exit codes: 0 no check failed; 1 a check failed; 2 wrong argument.
    """
    return asyncio.run(_diagnose(master, as_json))


async def _diagnose(target: Target, as_json: bool) -> int:
    found: list[Finding] = []
    async for finding in findings(target):
        found.append(finding)
        if not as_json:
            print_lines(finding.line)
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    return 1 if any(each.outcome == "fail" for each in found) else 0


async def findings(target: Target) -> AsyncIterator[Finding]:
    """Yield all findings; the rest is left out if the credentials cannot be used."""
    try:
        credentials = target.credentials()
    except InvalidRequest as error:
        yield fail("credentials", str(error))
        return
    now_s, is_usable = time.time(), True
    for finding in credential_findings(credentials, now_s):
        is_usable = is_usable and not (finding.outcome == "fail" and finding.check == "files")
        yield finding
    if not is_usable:
        return
    for address in target.addresses:
        async for finding in master_findings(address, credentials.security, now_s):
            yield finding
    async for finding in cluster_findings(target):
        yield finding


SKEW_WARN_S: Final = 10.0
SKEW_FAIL_S: Final = 300.0
_MOST_NAMED: Final = 5
_ROOT: Final = "root"


async def cluster_findings(target: Target) -> AsyncIterator[Finding]:
    """Yield findings about the cluster that `target` leads to."""
    try:
        async with connected(target) as master:
            yield ok("leader", f"master {master.address} leads")
            for check in (_master_findings, _caller_findings, _agent_findings):
                for finding in await check(master):
                    yield finding
    except CroupierError as error:
        yield fail("leader", str(error))


async def _master_findings(master: Master) -> list[Finding]:
    answer = await master.ask(master.service.ListMasters, operator_pb2.ListMastersRequest())
    masters = [as_object(each) for each in answer.masters]
    return [*release_findings(masters), *problem_findings(masters)]


def release_findings(masters: Sequence[View]) -> Iterator[Finding]:
    """Yield whether several masters are of one release; nothing about a single one."""
    if len(masters) < 2:
        return
    releases = Counter(each["version"] or "an unknown release" for each in masters)
    named = ", ".join(f"{number} of {release}" for release, number in sorted(releases.items()))
    text = f"{len(masters)} masters are running: {named}"
    if len(releases) > 1:
        yield warn("masters", text, "finish the upgrade; croupier masters lists them")
    else:
        yield ok("masters", text)


def problem_findings(masters: Sequence[View]) -> Iterator[Finding]:
    """Yield the problems that masters report of themselves."""
    for master in masters:
        if master["problem"]:
            text = f"master {master['address']}: {master['problem']}"
            yield warn("masters", text, "mend its files; it may not start again until then")


async def _caller_findings(master: Master) -> list[Finding]:
    before_s = time.time()
    try:
        answer = await master.ask(master.access.WhoAmI, pb.WhoAmIRequest())
    except Unavailable as error:
        return [warn("principal", str(error))]
    now_s = time.time()
    return [*_clock_findings(answer, before_s, now_s), *_who_findings(answer, now_s)]


def _clock_findings(answer: pb.WhoAmIResponse, before_s: float, now_s: float) -> Iterator[Finding]:
    """Yield the difference of the clocks, at least: the call took from `before_s` to `now_s`."""
    if not answer.time_ms:
        return
    theirs_s = answer.time_ms / 1000
    skew_s = max(before_s - theirs_s, theirs_s - now_s, 0.0)
    side = "ahead of" if theirs_s < before_s else "behind"
    text = f"this machine's clock is {duration_text(skew_s)} {side} the master's"
    advice = "set the clocks by NTP: certificates and tokens expire by them"
    if skew_s >= SKEW_FAIL_S:
        yield fail("clock", text, advice)
    elif skew_s >= SKEW_WARN_S:
        yield warn("clock", text, advice)
    else:
        yield ok("clock", "this machine and the master agree on the time")


def _who_findings(answer: pb.WhoAmIResponse, now_s: float) -> Iterator[Finding]:
    if not answer.is_auth_on:
        yield warn(
            "principal",
            "authentication is off: anyone who can reach the master may do everything",
            "start masters with --auth, or with --tls-cert",
        )
        return
    groups = ", ".join(answer.groups) or "none"
    text = f"{answer.principal} by {answer.credential}, groups: {groups}"
    left_s = answer.expires_ms / 1000 - now_s
    if answer.HasField("expires_ms") and answer.credential == "token" and left_s < SOON_S:
        left = f"{left_s / DAY_S:.0f} days" if left_s >= 2 * DAY_S else duration_text(left_s)
        yield warn("principal", f"{text}; the token expires in {left}", "croupier token create")
        return
    yield ok("principal", text)


async def _agent_findings(master: Master) -> list[Finding]:
    agents = await all_of(master, "agents")
    states = Counter("stopped" if _is_stopped(each) else each["state"] for each in agents)
    named = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    missing = states.total() - states["connected"] - states["gone"] - states["stopped"]
    if not states:
        seen = warn("agents", "you see no agents", "start agents, or ask for `view` on agent:*")
    elif missing:
        seen = warn("agents", f"{missing} missing: {named}", "croupier agents")
    else:
        seen = ok("agents", named)
    present = [each for each in agents if each["state"] == "connected"]
    return [seen, *health_findings(agents), *isolation_findings(present)]


def _is_stopped(agent: View) -> bool:
    """Return whether an operator drained the agent, and it is not connected."""
    drain = agent["drain"]
    return bool(drain and drain["done"]) and agent["state"] not in ("connected", "suspect")


def health_findings(agents: Sequence[View]) -> Iterator[Finding]:
    """Yield the problems of agents that get no tasks because of them."""
    unhealthy = [each for each in agents if each["problems"]]
    if unhealthy:
        yield warn(
            "agents",
            f"{_named(unhealthy)} reports a problem and gets no tasks",
            f"croupier agent show {unhealthy[0]['agent_id']}",
        )


def isolation_findings(agents: Sequence[View]) -> Iterator[Finding]:
    """Yield what connected agents do not enforce, and whether tasks are root on them."""
    if not agents:
        return
    unlimited = [each for each in agents if Feature.MEMORY.value not in each["isolation"]]
    unquoted = [each for each in agents if Feature.DISK_QUOTA.value not in each["isolation"]]
    as_root = [each for each in agents if _runs_as_root(each)]
    if unlimited:
        yield warn(
            "isolation",
            f"{_named(unlimited)} cannot enforce the memory limits of tasks",
            "give it a cgroup that it may write to, and --isolation auto; its log has the reason"
            " (isolation_reduced)",
        )
    if unquoted:
        yield warn(
            "isolation",
            f"{_named(unquoted)} has no project quotas: tasks can exceed disk limits briefly",
            "put its work dir on xfs, or on ext4 with the features project and quota, mounted with"
            " prjquota",
        )
    if as_root:
        yield warn(
            "isolation",
            f"{_named(as_root)} runs tasks that name no user as root",
            "start it with --task-user own, or with --task-user NAME",
        )
    if not unlimited and not unquoted and not as_root:
        yield ok(
            "isolation", "agents enforce memory and disk limits, and run no task as root by default"
        )


def _runs_as_root(agent: View) -> bool:
    """Return whether tasks without a user are root; only root can run them as other users."""
    user = agent["default_user"]
    return user == _ROOT or (user == AGENT_USER and Feature.USERS.value in agent["isolation"])


def _named(agents: Sequence[View]) -> str:
    names = [named(each["hostname"], each["agent_id"]) for each in agents]
    if len(names) > _MOST_NAMED:
        return f"{many(len(names), 'agent')}, such as {', '.join(names[:_MOST_NAMED])},"
    return f"agent {names[0]}" if len(names) == 1 else f"each of {', '.join(names)}"
