"""This machine, as the reactor uses it: its processes, sandboxes and health checks."""

from __future__ import annotations

from contextlib import suppress
from signal import SIGKILL, SIGTERM

from croupier.agent.core.effects import CheckHealth, Force, Spawn
from croupier.agent.core.events import Adopted, Exited, LaunchFailed, Vanished
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key
from croupier.agent.health_check import HealthCheck
from croupier.agent.janitor import Janitor
from croupier.agent.launcher import Launcher
from croupier.agent.supervisor import Supervisor
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import Unavailable

_SIGNALS = {Force.TERMINATE: SIGTERM, Force.KILL: SIGKILL}


class LocalMachine:
    """The `Machine` of the real reactor."""

    def __init__(
        self,
        launcher: Launcher,
        supervisor: Supervisor,
        janitor: Janitor,
        health_check: HealthCheck,
    ) -> None:
        """Own nothing: the agent ends the parts."""
        self._launcher, self._supervisor = launcher, supervisor
        self._janitor, self._health_check = janitor, health_check

    def has_sandbox(self, order: LaunchTask) -> bool:
        """Return whether the task has a sandbox already."""
        return self._launcher.has_sandbox(order)

    def launch(self, state: AgentState, spawn: Spawn) -> LaunchFailed | None:
        """Start a task's process; the supervisor reports the rest unless this fails."""
        info = state.tasks[spawn.key].info
        return self._launcher.launch(state.agent_id, spawn.key, info, spawn.run, again=spawn.again)

    def adopt(self, key: Key, run: str) -> Adopted | Exited | LaunchFailed | Vanished:
        """Find out what became of a run of an earlier agent.

        Raises:
            Unavailable: if the supervisor cannot find out.
        """
        try:
            answer = self._supervisor.adopt(key, run)
            if isinstance(answer, Vanished) and answer.never_started:
                # The task may be started now, as the same run.
                self._supervisor.forget(run)
        except OSError as error:
            raise Unavailable(f"cannot look at run {run} of task {key[1]}: {error}") from error
        return answer

    def signal(self, key: Key, force: Force) -> None:
        """Signal a task's processes; no effect if they have ended."""
        self._supervisor.signal(key, _SIGNALS[force])

    def forget_run(self, run: str) -> None:
        """Remove a run file; if that fails, the next agent removes it when it starts."""
        with suppress(OSError):
            self._supervisor.forget(run)

    def retire(self, key: Key) -> None:
        """Release the sandbox of a task that the agent has forgotten."""
        self._janitor.retire(key)

    def check_health(self, wanted: CheckHealth) -> None:
        """Plan a health check in place of the planned one."""
        self._health_check.ask(wanted)
