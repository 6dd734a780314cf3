"""Checks of agents: their health, and the isolation of their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from croupier.cli.amounts import View, many, named
from croupier.ctl.doctor.finding import Finding, ok, warn
from croupier.model.access import AGENT_USER
from croupier.model.isolation import Feature

_MOST_NAMED: Final = 5
_ROOT: Final = "root"


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
            f"{_named(unlimited)} cannot hold tasks to their memory",
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
        yield ok("isolation", "tasks are held to memory and disk, and none is root by default")


def _runs_as_root(agent: View) -> bool:
    """Return whether tasks without a user are root; only root can run them as other users."""
    user = agent["default_user"]
    return user == _ROOT or (user == AGENT_USER and Feature.USERS.value in agent["isolation"])


def _named(agents: Sequence[View]) -> str:
    names = [named(each["hostname"], each["agent_id"]) for each in agents]
    if len(names) > _MOST_NAMED:
        return f"{many(len(names), 'agent')}, such as {', '.join(names[:_MOST_NAMED])},"
    return f"agent {names[0]}" if len(names) == 1 else f"each of {', '.join(names)}"
