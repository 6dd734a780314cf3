"""What tasks use: now, and as sums."""

from __future__ import annotations

from croupier.agent.core import events as ev
from croupier.agent.core.effects import Moved
from croupier.agent.core.events import Ending
from croupier.agent.task_usage import TaskUsage
from croupier.model.agent_orders import LaunchTask
from croupier.model.ids import DEFAULT_ROLE, TaskId
from croupier.model.isolation import Usage
from tests.harness.agent_core import KEY, F, World, task


class Measured:
    """Isolation that returns the usages that the test sets, by run."""

    def __init__(self) -> None:
        self.found: dict[str, Usage] = {}
        self.is_broken = False

    def usage(self, run: str) -> Usage | None:
        if self.is_broken:
            raise OSError("gone")
        return self.found.get(run)


class Sampled:
    """An agent's core with tasks, and what they use."""

    def __init__(self) -> None:
        self.world = World().running()
        self.isolation = Measured()
        self.usage = TaskUsage(self.world.state, self.isolation)  # type: ignore[arg-type]

    def do(self, *events: ev.Event) -> None:
        before = len(self.world.effects)
        self.world.do(*events)
        for effect in self.world.effects[before:]:
            if isinstance(effect, Moved):
                self.usage.on_status(effect.status)


async def test_live_tasks_are_summed() -> None:
    agent = Sampled()
    other = (F, TaskId("t2"))
    agent.do(LaunchTask(F, task("t2"), DEFAULT_ROLE), ev.Started(other, 8))
    agent.isolation.found = {
        "0-1": Usage(cpu_ms=1500, memory_peak=100, disk_bytes=7),
        "0-2": Usage(cpu_ms=500, memory_peak=50),
    }
    await agent.usage.sample(0)
    assert (agent.usage.cpu_s, agent.usage.memory_peak, agent.usage.disk_bytes) == (2.0, 150, 7)


async def test_the_cpu_time_never_falls() -> None:
    agent = Sampled()
    seen = []

    async def sample(cpu_ms: int) -> None:
        agent.isolation.found = {"0-1": Usage(cpu_ms=cpu_ms)}
        await agent.usage.sample(0)
        seen.append(agent.usage.cpu_s)

    await sample(1000)
    await sample(900)
    await sample(3000)
    agent.do(ev.Exited(KEY, exit_code=0, ending=Ending(Usage(cpu_ms=2000))))
    seen.append(agent.usage.cpu_s)
    assert seen == [1.0, 1.0, 3.0, 3.0]
    assert agent.usage.memory_peak == 0


async def test_an_end_counts_without_a_sample() -> None:
    agent = Sampled()
    agent.do(ev.Exited(KEY, exit_code=0, ending=Ending(Usage(cpu_ms=2000))))
    assert agent.usage.cpu_s == 2.0
    ended = agent.usage.of(KEY)
    assert ended == Usage(cpu_ms=2000)


async def test_void_tasks_count_once() -> None:
    agent = Sampled()
    agent.isolation.found = {"0-1": Usage(cpu_ms=1000, memory_peak=5)}
    await agent.usage.sample(0)
    agent.do(ev.Removed())
    for _ in range(2):
        await agent.usage.sample(0)
    assert (agent.usage.cpu_s, agent.usage.memory_peak) == (1.0, 0)


async def test_isolation_that_cannot_tell_does_no_harm() -> None:
    agent = Sampled()
    assert agent.usage.of(KEY) is None
    assert agent.usage.of((F, TaskId("unknown"))) is None
    agent.isolation.is_broken = True
    await agent.usage.sample(0)
    assert agent.usage.cpu_s == 0


def test_an_end_tells_how_long_the_task_has_run_whatever_the_wall_clock_says() -> None:
    world = World().running()
    world.now, world.wall_ms = world.now + 90.0, 1
    world.do(ev.Exited(KEY, exit_code=0, ending=Ending(Usage(cpu_ms=10, memory_peak=20))))
    status = world.state.tasks[KEY].status
    assert status.usage == Usage(cpu_ms=10, memory_peak=20, run_ms=90_000)


def test_a_task_that_was_not_measured_tells_nothing() -> None:
    world = World().running()
    world.do(ev.Exited(KEY, exit_code=0))
    assert world.state.tasks[KEY].status.usage is None
