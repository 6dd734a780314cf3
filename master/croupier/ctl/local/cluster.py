"""Starting, restarting and stopping the daemons of a local cluster.

Rule: a bounded number of agents start at once; they wait until the master takes them. The cluster
is waited for as long as agents register. Agents stop before the master, so that they can
unregister. A daemon that has not ended 10 s after SIGTERM is killed. A daemon that dies is
restarted with the same flags; its tasks keep running.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from croupier.cli.flags import Target
from croupier.cli.terminal import print_lines
from croupier.ctl.local.children import Child, Children
from croupier.ctl.local.plan import Daemon, LocalPlan
from croupier.ctl.local.security import LocalSecurity
from croupier.model.errors import Unavailable
from croupier.net.backoff import Backoff
from croupier.net.task_scope import racing, until_one_ends
from croupier.process.daemon import PARENT_VARIABLE

# Agents that start at once, and the longest time in which none is registered.
AT_ONCE = 8
PATIENCE_S = 60.0
STOP_S = 10.0
# The first and the longest wait before a daemon is restarted.
RESTART_S = 0.2
MAX_RESTART_S = 30.0
_POLL_S = 0.02


class Cluster:
    """A master and agents as child processes; `isolation`, in words, is that of `ready` agents."""

    def __init__(
        self,
        plan: LocalPlan,
        work_dir: Path,
        children: Children,
        security: LocalSecurity | None = None,
        wait_s: float | None = None,
    ) -> None:
        """Wait at most `wait_s` for all agents; None: as long as agents register."""
        self._wait_s, self._patience_s = wait_s, PATIENCE_S
        self._waiting_since = 0.0
        self.ready = 0
        self._plan, self._work_dir, self._children = plan, work_dir, children
        self._security = security
        self._target = Target((plan.master_address,)) if security is None else security.target
        self._started: list[Child] = []
        self._asked: set[Child] = set()
        self._has_crashed = self._is_slow = False
        self.isolation = ""

    @property
    def has_failed(self) -> bool:
        """Whether a daemon crashed, ended with an error, or had to be killed."""
        return self._has_crashed or self._is_slow or any(map(self._ended_badly, self._started))

    @property
    def logs(self) -> list[Path]:
        """The log files of the daemons."""
        return [child.log for child in self._started]

    async def bring_up(self) -> None:
        """Start all daemons and wait until all agents are registered.

        If agents register no more, the cluster is used with those that have. Raises Unavailable if
        a daemon ends, no agent registers, or `wait_s` passes.
        """
        begun = asyncio.get_running_loop().time()
        self._launch_first()
        # Imports gRPC, while the daemons start.
        import croupier.ctl.local.questions  # noqa: F401

        try:
            async with asyncio.timeout(self._wait_s):
                for step in (self._is_listening, self._admits_agents, self._are_registered):
                    await self._until(step)
        except TimeoutError:
            took = asyncio.get_running_loop().time() - begun
            missing = len(self._plan.agents) - self.ready
            waiting = f"{missing} of {len(self._plan.agents)} agents are not registered"
            if self._wait_s is not None or not self.ready:
                raise Unavailable(f"not ready after {took:.0f} s: {waiting}") from None
            report(f"{waiting} after {took:.0f} s; they may come later: croupier agents")
            self._launch_agents(missing)

    def _launch_first(self) -> None:
        """Start daemons, which load their modules while this process makes their files."""
        wait, go = os.pipe()
        try:
            self._started.append(self._launch(self._plan.master, wait))
            self._launch_agents(AT_ONCE, wait)
            if self._security is not None:
                self._security.write_files()
        finally:
            os.close(go)
            os.close(wait)

    async def watch(self) -> None:
        """Report and restart each daemon that ends; raises OSError if one cannot be restarted."""
        daemons = (self._plan.master, *self._plan.agents)
        await until_one_ends(*(self._keep(*each) for each in enumerate(daemons)))

    async def take_down(self, hurry: Coroutine[Any, Any, None]) -> None:
        """Stop the agents and then the master; `hurry` ends the wait for them."""
        async with racing(self._ask_to_stop(), hurry, timeout_s=STOP_S) as tasks:
            if not any(task.done() for task in tasks):
                slow = ", ".join(child.name for child in self._started if not child.ended.is_set())
                self._is_slow = True
                report(f"killing the daemons that did not stop within {STOP_S:g} s: {slow}")

    async def _ask_to_stop(self) -> None:
        master, agents = self._started[:1], self._started[1:]
        for group in (agents, master):
            for child in group:
                if not child.ended.is_set():
                    self._asked.add(child)
                self._children.signal(child, signal.SIGTERM)
            for child in group:
                await child.ended.wait()

    def _ended_badly(self, child: Child) -> bool:
        # SIGTERM kills a daemon that does not handle signals yet.
        is_as_asked = child in self._asked and child.status == -signal.SIGTERM
        return child.status != 0 and not is_as_asked

    async def _keep(self, number: int, daemon: Daemon) -> None:
        """Restart a daemon whenever it has ended, with backoff if it ends soon."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(RESTART_S, MAX_RESTART_S, random.Random())
        while True:
            child, began = self._started[number], loop.time()
            await child.ended.wait()
            self._has_crashed = True
            ending = f"{child.name} (pid {child.pid}) {child.exit_text}"
            report(f"{ending}; its log: {child.log}; restarting it")
            if loop.time() - began > MAX_RESTART_S:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())
            self._started[number] = self._launch(daemon)

    def _launch(self, daemon: Daemon, stdin: int | None = None) -> Child:
        # The user's settings for commands must not reach the daemons.
        environment = {n: v for n, v in os.environ.items() if not n.startswith("CROUPIER_")}
        environment[PARENT_VARIABLE] = str(os.getpid())
        log = self._work_dir / f"{daemon.name}.log"
        return self._children.start(daemon, log, environment, stdin)

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition; raises TimeoutError or, if a daemon ends, Unavailable."""
        loop = asyncio.get_running_loop()
        self._waiting_since = loop.time()
        while not await condition():
            # A look at many agents costs more.
            await asyncio.sleep(_POLL_S * max(1, len(self._plan.agents) // 3))
            self._check_alive()
            if loop.time() - self._waiting_since > self._patience_s:
                raise TimeoutError

    async def _is_listening(self) -> bool:
        """Return whether something listens at the master's address: a look that costs nothing."""
        address = self._plan.master_address
        with socket.socket() as probe:
            probe.settimeout(_POLL_S)
            return probe.connect_ex((address.host, address.port)) == 0

    async def _admits_agents(self) -> bool:
        """Store the token by which agents join; return whether that is done."""
        if self._security is None:
            return True
        from croupier.ctl.local.questions import admits

        if not await admits(self._target, self._security.join_token):
            return False
        self._security.let_join()
        return True

    async def _are_registered(self) -> bool:
        """Return whether all agents are registered; note their isolation, and start others."""
        from croupier.ctl.local.questions import connected_agents

        found = await connected_agents(self._target)
        self.isolation = next(iter(found.values()), self.isolation)
        ready = len(found.keys() & {agent.name for agent in self._plan.agents})
        if ready > self.ready:
            self.ready, self._waiting_since = ready, asyncio.get_running_loop().time()
        self._launch_agents(AT_ONCE + ready - (len(self._started) - 1))
        return ready == len(self._plan.agents)

    def _launch_agents(self, number: int, stdin: int | None = None) -> None:
        begin = len(self._started) - 1
        agents = self._plan.agents[begin : begin + max(0, number)]
        self._started += [self._launch(agent, stdin) for agent in agents]

    def _check_alive(self) -> None:
        for child in self._started:
            if child.ended.is_set():
                last = child.last_log_line()
                raise Unavailable(
                    f"{child.name} {child.exit_text} before it was ready"
                    + (f": {last}" if last else "")
                )


def report(line: str) -> None:
    """Print a message of `croupier local` to stderr."""
    print_lines(f"croupier local: {line}", file=sys.stderr)
