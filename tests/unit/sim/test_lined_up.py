"""Tasks that are lined up at simulated agents, and the experiment on them."""

from __future__ import annotations

from functools import partial

import pytest

from croupier.lab.cluster import PATIENT, Node, SimulatedCluster, make_allocator
from croupier.lab.experiments import lined_up
from croupier.master.core.messages import ToAgent, ToFramework
from croupier.model.agent_orders import RecallTask
from croupier.model.task import Reason
from croupier.sim.agent import Link, SimulatedAgent
from croupier.sim.experiment import Options, Result
from croupier.sim.framework import Habits
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work
from tests.harness.sim_faults import checked_steps, crash

SLOT = Size.of(1, 1)
SHAPE = Shape(SLOT.resources, SLOT)
SUBMITS = Habits(submits=True)


def make_cluster(delay_s: float = 0.002) -> SimulatedCluster:
    size = Size.of(2, 2)
    nodes = [Node("n", size, size.resources)]
    return SimulatedCluster(
        nodes, make_allocator(), settings=PATIENT, link=Link(delay_s, lines_up=True)
    )


def run_experiment() -> Result:
    return lined_up.run(Options(), lambda done, text="": None)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lined_up, "SLOTS", (4,))
    monkeypatch.setattr(lined_up, "ROUND_TRIPS_S", (0.005,))
    monkeypatch.setattr(lined_up, "VISITS", 2)


@pytest.mark.usefixtures("small")
class TestExperiment:
    def test_the_guest_is_served_in_time(self) -> None:
        with checked_steps():
            result = run_experiment()
        assert [check.got for check in result.checks if not check.passed] == []
        assert [plot.name for plot in result.plots] == ["lined_up_wait", "lined_up_speed"]
        (row,) = result.tables[0].rows
        lined, single = row[2:4]
        assert isinstance(lined, int)
        assert isinstance(single, int)
        assert lined > 1.3 * single

    def test_it_fails_if_recalls_are_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        obey = SimulatedAgent._obey

        def ignore(agent: SimulatedAgent, message: ToAgent | ToFramework) -> None:
            if not isinstance(message, RecallTask):
                obey(agent, message)

        monkeypatch.setattr(SimulatedAgent, "_obey", ignore)
        in_time, is_used, _ = run_experiment().checks
        assert not in_time.passed
        assert is_used.passed


class TestAgent:
    def test_each_task_runs_once_also_after_crashes(self) -> None:
        cluster = make_cluster()
        ended: list[Work] = []
        works = [Work(SHAPE, 0.01) for _ in range(200)]
        cluster.framework("f", "f", SUBMITS, works, ended.append)
        agent = cluster.agents[0]
        for at_s in (0.1, 0.2, 0.3):
            cluster.kernel.at(at_s, partial(crash, agent, 0.01, tasks_survive=True))
        with checked_steps():
            cluster.run(5.0)
        assert sorted(map(id, ended)) == sorted(map(id, works))
        assert agent.launched == len(works)
        assert cluster.waiting == 0

    def test_a_framework_that_leaves_takes_its_line_along(self) -> None:
        cluster = make_cluster()
        framework = cluster.framework("f", "f", SUBMITS, [Work(SHAPE, 0.01) for _ in range(200)])
        cluster.kernel.at(0.2, framework.leave)
        with checked_steps():
            cluster.run(1.0)
        assert cluster.agents[0]._line == {}
        assert len(cluster.agents[0].machine) == 0

    def test_a_line_behind_killed_tasks_is_recalled_or_used(self) -> None:
        """The killed tasks are succeeded by none, so the line would wait for ever."""
        cluster = make_cluster()
        ended: list[Work] = []
        works = [Work(SHAPE, 0.05) for _ in range(20)]
        cluster.framework("f", "f", SUBMITS, works, ended.append)
        agent = cluster.agents[0]

        def kill_all() -> None:
            assert agent._line
            for key in [key for key in agent._tasks if key in agent.machine]:
                agent._kill(key, Reason.NONE)

        cluster.kernel.at(0.12, kill_all)
        with checked_steps():
            cluster.run(5.0)
        assert len(ended) == len(works)

    @pytest.mark.parametrize("habits", [SUBMITS, Habits(), Habits(declares=False)])
    def test_guests_by_offers_are_served_in_time_too(self, habits: Habits) -> None:
        cluster = make_cluster()
        cluster.framework("busy", "busy", SUBMITS, [Work(SHAPE, 0.01) for _ in range(300)])
        guest = cluster.framework("guest", "guest", habits)
        work = Work(SHAPE, 0.01)
        cluster.kernel.at(0.3, lambda: guest.submit([work]))
        with checked_steps():
            cluster.run(0.5)
        assert work.started_at is not None
        # A task of 10 ms, and 1.5 round trips of 4 ms.
        assert work.started_at - work.submitted_at < 0.01 + 0.006 + 1e-9
