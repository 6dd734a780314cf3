"""Health checks and failed launches: the agent becomes unhealthy, or healthy again."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.agent.core.effects import CheckHealth, Effect, HealthChanged
from croupier.agent.core.events import HealthChecked, Now
from croupier.agent.core.health import CHECK_EVERY_S
from croupier.agent.core.state import AgentState
from croupier.model.health import DISK, Problem
from croupier.model.ids import FrameworkId

DISK_FULL = "the disk of the agent's work dir is full"


def on_disk_full(state: AgentState, now: Now) -> Iterator[Effect]:
    """Become unhealthy: the disk has no room for records of new tasks."""
    yield from _fail(state, Problem(DISK, DISK_FULL), now)


def on_health_checked(state: AgentState, event: HealthChecked, now: Now) -> Iterator[Effect]:
    """Take over the result of a check, and ask for the next check."""
    health = state.health
    before = health.problems
    if before and event.is_thorough:
        if event.problems:
            health.fail_again(event.problems)
        else:
            health.recover(now.at)
    elif event.problems:
        health.fail(event.problems, now.at)
    if health.problems != before:
        yield HealthChanged(state.session, health.problems)
    yield _next_check(state)


def on_failed_launch(
    state: AgentState, framework_id: FrameworkId, cause: str, now: Now
) -> Iterator[Effect]:
    """Count a launch that failed through the agent's fault, and check for the reason at once."""
    if not state.health.is_healthy:
        return
    problem = state.health.count_failure(framework_id, cause)
    if problem is not None:
        yield from _fail(state, problem, now)
    else:
        yield CheckHealth(0.0)


def _fail(state: AgentState, problem: Problem, now: Now) -> Iterator[Effect]:
    health = state.health
    if any(known.part == problem.part for known in health.problems):
        return
    was_healthy = health.is_healthy
    health.fail((*health.problems, problem), now.at)
    yield HealthChanged(state.session, health.problems)
    if was_healthy:
        yield _next_check(state)


def _next_check(state: AgentState) -> Effect:
    if state.health.is_healthy:
        return CheckHealth(CHECK_EVERY_S)
    return CheckHealth(state.health.retry_s, is_thorough=True)
