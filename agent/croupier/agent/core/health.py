"""The agent's health: the problems that prevent launches, and the time of the next check.

Rule: an agent becomes unhealthy on the first problem and healthy only by a thorough check. The
waits between thorough checks double, and keep doubling if the agent fails again soon after.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.model.health import LAUNCH, Problem
from croupier.model.ids import FrameworkId

# The time between checks of a healthy agent.
CHECK_EVERY_S = 5.0
# The longest waits of an unhealthy agent for its first check and for later ones.
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 60.0
# An agent that was healthy for this time begins again with short waits.
STEADY_S = 120.0
# Consecutive launches that fail through the agent's fault before it becomes unhealthy.
FAILURES_OF_SEVERAL = 3
FAILURES_OF_ONE = 10


@dataclass(slots=True)
class Health:
    """The problems that prevent the agent from launching tasks.

    Attributes:
        problems: empty if the agent is healthy.
        failures: the number of consecutive launches that failed through the agent's fault.
        failed: the frameworks of these launches.
        retries: the number of times that the wait for the next check was doubled.
        recovered_at: when the agent became healthy again; None if it always was healthy.
    """

    problems: tuple[Problem, ...] = ()
    failures: int = 0
    failed: set[FrameworkId] = field(default_factory=set)
    retries: int = 0
    recovered_at: float | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether the agent takes launches."""
        return not self.problems

    @property
    def retry_s(self) -> float:
        """The longest wait for the next check of an unhealthy agent."""
        return float(min(FIRST_RETRY_S * 2.0**self.retries, LAST_RETRY_S))

    def fail(self, problems: tuple[Problem, ...], now: float) -> None:
        """Become unhealthy, or replace the problems of an unhealthy agent."""
        if self.is_healthy:
            is_flapping = self.recovered_at is not None and now - self.recovered_at < STEADY_S
            self.retries = min(self.retries + 1, 16) if is_flapping else 0
        self.problems = problems

    def fail_again(self, problems: tuple[Problem, ...]) -> None:
        """Stay unhealthy after a thorough check, and wait longer for the next one."""
        self.problems = problems
        self.retries = min(self.retries + 1, 16)

    def recover(self, now: float) -> None:
        """Become healthy. `retries` stays, in case the agent fails again soon."""
        self.problems = ()
        self.recovered_at = now
        self.reset_failures()

    def reset_failures(self) -> None:
        """Record that a launch succeeded."""
        if self.failures:
            self.failures = 0
            self.failed.clear()

    def count_failure(self, framework_id: FrameworkId, cause: str) -> Problem | None:
        """Count a launch that failed through the agent's fault; return a problem after many."""
        self.failures += 1
        self.failed.add(framework_id)
        most = FAILURES_OF_SEVERAL if len(self.failed) > 1 else FAILURES_OF_ONE
        if self.failures < most:
            return None
        message = f"{self.failures} launches in a row have failed; last cause: {cause}"
        return Problem(LAUNCH, message)

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self.failed) <= self.failures
        parts = [problem.part for problem in self.problems]
        assert len(parts) == len(set(parts)), "a part has one problem at a time"
