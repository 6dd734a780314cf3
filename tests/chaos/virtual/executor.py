"""An executor: a process that runs tasks of its framework, and outlives the agent.

It does what the SDK's does: it registers again after each loss of its stream, lists the tasks whose
end the agent has not acknowledged, and sends its updates until they are acknowledged, in order. It
answers messages of its framework, at once or later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.model.ids import TaskId
from croupier.model.task import TaskInfo, TaskState
from tests.chaos.virtual.machine import Key, Machine, Run

if TYPE_CHECKING:
    from tests.chaos.virtual.agent import AgentProcess

# The time that a message takes to pass the socket, and between attempts to connect.
PASS_S = 0.001
RETRY_S = 0.3


@dataclass(slots=True)
class Executor:
    """The executor of one run.

    Attributes:
        listed: tasks whose end is not acknowledged.
        updates: those that are not acknowledged, by number.
        stream: of the agent's life and the number of the connection; None without one.
    """

    run: Run
    machine: Machine
    random: Random
    is_silent: bool
    tasks: dict[TaskId, Run] = field(default_factory=dict)
    listed: set[TaskId] = field(default_factory=set)
    updates: dict[int, tuple[TaskId, TaskState]] = field(default_factory=dict)
    number: int = 0
    stream: tuple[int, int] | None = None
    is_shutting_down: bool = False

    def begin(self, agent: AgentProcess) -> None:
        """Register as soon as the agent is up, and again whenever it was away."""
        self._after(self.random.uniform(0.0, 0.5), lambda: self._connect(agent))

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self.machine.clock.after(seconds, lambda: action() if self.run.lives else None)

    def _connect(self, agent: AgentProcess) -> None:
        is_open = self.stream is not None and self.stream[0] == agent.life and agent.is_up
        if not is_open and agent.is_up and not agent.paused and not self.is_silent:
            agent.connections += 1
            self.stream = (agent.life, agent.connections)
            agent.streams[agent.connections] = self
            listed = frozenset(self.listed)
            agent.put(ev.ExecutorRegistered(self.run.key, agent.connections, listed))
            for number in sorted(self.updates):
                self._send(agent, number)
        elif is_open and self.random.random() < 0.02:
            assert self.stream is not None
            agent.put(ev.ExecutorLeft(self.run.key, self.stream[1]))
            agent.streams.pop(self.stream[1], None)
            self.stream = None
        self._after(RETRY_S, lambda: self._connect(agent))

    def on_message(self, agent: AgentProcess, effect: fx.ToExecutor) -> None:
        """Handle what the agent has sent, unless the stream has ended meanwhile."""
        life = agent.life

        def arrive() -> None:
            if self.stream == (life, effect.connection):
                self._take(agent, effect.message)

        self._after(PASS_S, arrive)

    def _take(self, agent: AgentProcess, message: object) -> None:
        match message:
            case fx.RunTask(info):
                self._launch(agent, info)
            case fx.EndTask(task_id):
                self._kill(agent, task_id)
            case fx.UpdateDurable(_, update_id):
                update = self.updates.pop(int.from_bytes(update_id, "big"), None)
                if update is not None and update[1].is_terminal:
                    self.listed.discard(update[0])
            case fx.Said(data):
                self.machine.judge.messages.on_arrived(data, self.run.key)
                # Not drawn, so that seeds find the same mutants as before.
                self._after(crc32(data) % 3 * 0.3, lambda: self._say(agent, data + b" answer"))
            case fx.ShutDown():
                self.is_shutting_down = True
                if self.run.heeds:
                    self._after(0.02, lambda: self.machine.ends(self.run, 0, None))
            case _:
                pass

    def _launch(self, agent: AgentProcess, info: TaskInfo) -> None:
        if info.task_id in self.tasks:
            self.machine.judge.on_launched_again(info.task_id)
            return
        lasts, code, heeds = info.data.decode().split()
        key: Key = (self.run.key[0], info.task_id)
        child = Run(key, "", self.run.pid, info.resources, heeds == "1", executor=self.run)
        child.most_s, child.started = info.max_completion_ms / 1000, self.machine.clock.now()
        self.tasks[info.task_id] = child
        self.listed.add(info.task_id)
        self.machine.begin_in_executor(child)
        self._update(agent, info.task_id, TaskState.RUNNING)
        end = TaskState.FAILED if int(code) else TaskState.FINISHED
        self._after(float(lasts), lambda: self._end(agent, info.task_id, end))

    def _kill(self, agent: AgentProcess, task_id: TaskId) -> None:
        child = self.tasks.get(task_id)
        if child is not None and child.heeds:
            self._after(0.02, lambda: self._end(agent, task_id, TaskState.KILLED))

    def _end(self, agent: AgentProcess, task_id: TaskId, state: TaskState) -> None:
        child = self.tasks[task_id]
        if child.lives:
            child.outcome = state
            self.machine.ends(child, None, None)
            self._update(agent, task_id, state)

    def _say(self, agent: AgentProcess, data: bytes) -> None:
        if self.stream is not None and self.stream[0] == agent.life and agent.is_up:
            self.machine.judge.messages.on_sent(data, self.run.key)
            agent.put(ev.ExecutorSaid(self.run.key, self.stream[1], data))

    def _update(self, agent: AgentProcess, task_id: TaskId, state: TaskState) -> None:
        self.number += 1
        self.updates[self.number] = (task_id, state)
        self._send(agent, self.number)

    def _send(self, agent: AgentProcess, number: int) -> None:
        if self.stream is None or number not in self.updates:
            return
        life, connection = self.stream
        task_id, state = self.updates[number]
        name = number.to_bytes(8, "big")
        if agent.is_up and agent.life == life:
            update = ev.ExecutorUpdated(self.run.key, connection, task_id, state, name)
            agent.put(update)
