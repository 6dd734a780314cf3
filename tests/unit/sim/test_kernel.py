"""Virtual time: the order of events, determinism, and that no task is lost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial

import pytest

from croupier.lab.cluster import Node, Series, SimulatedCluster, make_allocator
from croupier.lab.jobs import Job, LoopingUser, submit
from croupier.master.core.events import AllocationDue
from croupier.master.core.messages import ToAgent, ToFramework
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.model.errors import CroupierError
from croupier.model.resources import Resources
from croupier.sim.framework import Habits
from croupier.sim.kernel import Kernel
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work
from tests.harness.sim_faults import beat, checked_steps, crash, disconnect, every, moody_framework

NODE = Size.of(4, 8)
SHAPE = Shape(Resources.parse("cpus:1;mem:1GB"), Size.of(1, 1))
WIDE = Shape(Resources.parse("cpus:3;mem:2GB"), Size.of(3, 2))


@pytest.fixture(autouse=True)
def _checked() -> Iterator[None]:
    with checked_steps():
        yield


def make_cluster(
    nodes: int = 2, seed: int = 0, settings: Settings | None = None, tick_s: float = 0.0
) -> SimulatedCluster:
    advertised = Resources({"cpus": NODE.cpus, "mem": NODE.mem})
    return SimulatedCluster(
        [Node(f"n{i}", NODE, advertised) for i in range(nodes)],
        make_allocator(seed=seed),
        seed,
        settings or Settings(agent_timeout_s=1e9, suspect_beats=float("inf")),
        tick_s=tick_s,
    )


def make_kernel() -> Kernel:
    return Kernel(State("m", Settings(), make_allocator()))


class TestKernel:
    def test_actions_run_in_order_of_time_then_of_arrival(self) -> None:
        kernel = make_kernel()
        done: list[tuple[str, float]] = []
        for name, at in (("late", 5.0), ("first", 1.0), ("second", 1.0), ("past", -3.0)):
            kernel.at(at, partial(lambda name: done.append((name, kernel.now)), name))
        kernel.run(10.0)
        assert done == [("past", 0.0), ("first", 1.0), ("second", 1.0), ("late", 5.0)]
        assert kernel.now == 10.0

    def test_later_actions_wait_for_the_next_run(self) -> None:
        kernel = make_kernel()
        done: list[float] = []
        every(kernel, 4.0, lambda: done.append(kernel.now))
        kernel.run(5.0)
        assert done == [0.0, 4.0]
        kernel.run(12.0)
        assert done == [0.0, 4.0, 8.0, 12.0]

    def test_samples_are_taken_at_rest(self) -> None:
        cluster = make_cluster(1)
        series = Series(cluster.kernel, 1.0)
        framework = cluster.framework("f", works=[Work(SHAPE, 2.5)])
        series.watch("running", lambda: framework.running)
        series.watch("waiting", lambda: cluster.waiting)
        cluster.run(5.0)
        assert [at for at, _ in series.curves["running"]] == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert [value for _, value in series.curves["running"]] == [1, 1, 1, 0, 0]
        assert series.mean("running", 0.0, 3.0) == 1.0
        assert series.mean("running", 100.0) == 0.0
        assert not any(value for _, value in series.curves["waiting"])

    def test_a_run_stops_when_it_is_over(self) -> None:
        kernel = make_kernel()
        done: list[float] = []
        every(kernel, 1.0, lambda: done.append(kernel.now))
        kernel.run(100.0, is_over=lambda: len(done) == 3)
        assert done == [0.0, 1.0, 2.0]
        assert kernel.now == 2.0

    def test_peers_that_never_rest_are_an_error_not_a_hang(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("croupier.sim.kernel._MAX_ROUNDS", 100)
        kernel = make_kernel()

        class Chatterbox:
            def take(self, message: ToAgent | ToFramework) -> None:
                raise AssertionError(message)

            def closed(self, error: CroupierError | None) -> None:
                raise AssertionError(error)

            def send(self) -> None:
                kernel.will_send(self)

        kernel.will_send(Chatterbox())
        with pytest.raises(RuntimeError, match=r"at 0\.0 s the master and its peers never come"):
            kernel.run(1.0)

    def test_progress_is_reported(self) -> None:
        kernel = make_kernel()
        every(kernel, 0.01, lambda: None)
        reported: list[float] = []
        kernel.run(10.0, reported.append)
        assert reported == sorted(reported)
        assert reported

    def test_a_broken_invariant_fails_at_the_next_step(self) -> None:
        cluster = make_cluster(1)
        for agent in cluster.kernel.state.agents.values():
            agent.total = Resources.parse("cpus:1")
        with pytest.raises(AssertionError):
            cluster.kernel.step(AllocationDue())


class TestCluster:
    def test_tasks_run_for_as_long_as_they_take(self) -> None:
        cluster = make_cluster(1)
        works = [Work(SHAPE, 10.0) for _ in range(6)]
        ended: list[tuple[Work, float]] = []
        framework = cluster.framework(
            "f", works=works, on_end=lambda work: ended.append((work, cluster.now))
        )
        cluster.run(100.0)
        assert [at for _, at in ended] == [10.0] * 4 + [20.0] * 2
        assert [work.started_at for work in works] == [0.0] * 4 + [10.0] * 2
        assert framework.held == {"cpus": 0, "mem": 0}
        assert cluster.simulated.tasks == 6
        assert cluster.busy == Size(0, 0)

    def test_two_frameworks_share_in_dominant_shares(self) -> None:
        cluster = make_cluster(3)
        for name in ("a", "b"):
            cluster.framework(name, name, works=[Work(SHAPE, 1000.0) for _ in range(20)])
        cluster.run(1.0)
        assert cluster.busy == Size.of(12, 12)
        shares = [
            cluster.kernel.state.allocator.queries.share(f) for f in cluster.kernel.state.frameworks
        ]
        assert [float(share) for share in shares] == [0.5, 0.5]

    def test_a_framework_without_demand_is_offered_remainders(self) -> None:
        cluster = make_cluster(2)
        ended: list[float] = []
        framework = moody_framework(
            cluster,
            "f",
            habits=Habits(declares=False),
            think_s=0.5,
            works=[Work(WIDE, 5.0), Work(SHAPE, 5.0)],
            on_end=lambda _: ended.append(cluster.now),
        )
        cluster.run(4.0)
        # The rest of each agent was returned, and the framework suppresses offers.
        assert cluster.kernel.state.allocator.queries.is_suppressed(framework.framework_id)
        cluster.run(60.0)
        assert len(ended) == 2
        assert framework.declined == 1
        framework.submit([Work(SHAPE, 1.0)])
        cluster.run(80.0)
        assert len(ended) == 3

    def test_random_declines_only_delay_work(self) -> None:
        cluster = make_cluster(1, seed=5)
        ended: list[float] = []
        framework = moody_framework(
            cluster,
            "f",
            habits=Habits(refuse_s=2.0),
            declines=0.8,
            works=[Work(SHAPE, 1.0) for _ in range(4)],
            on_end=lambda _: ended.append(cluster.now),
        )
        cluster.run(500.0)
        assert len(ended) == 4
        assert framework.declined > 0
        assert framework.refused == 0

    def test_failed_tasks_are_launched_again(self) -> None:
        cluster = make_cluster(1)
        ended: list[float] = []
        cluster.framework(
            "f", works=[Work(SHAPE, 2.0, failures=2)], on_end=lambda _: ended.append(cluster.now)
        )
        cluster.run(100.0)
        assert ended == [6.0]

    def test_with_a_tick_ends_are_noticed_together(self) -> None:
        cluster = make_cluster(1, tick_s=1.0)
        ended: list[float] = []
        cluster.framework(
            "f",
            works=[Work(SHAPE, seconds) for seconds in (0.2, 0.7, 1.0, 1.1)],
            on_end=lambda _: ended.append(cluster.now),
        )
        cluster.run(10.0)
        assert ended == [1.0, 1.0, 1.0, 2.0]

    def test_a_job_ends_with_the_last_task_of_its_last_stage(self) -> None:
        cluster = make_cluster(1)
        done: list[Job] = []
        job = Job("j", [[Work(SHAPE, 3.0), Work(SHAPE, 4.0)], [Work(WIDE, 5.0)]])
        submit(cluster, job, on_done=done.append)
        cluster.run(100.0)
        assert done == [job]
        assert (job.response_s, job.tasks) == (9.0, 3)
        # Its framework was removed.
        assert not cluster.kernel.state.frameworks

    def test_a_user_submits_the_next_job_when_one_is_done(self) -> None:
        cluster = make_cluster(1)
        user = LoopingUser(cluster, "u", lambda n: Job(f"u{n}", [[Work(SHAPE, 1.0 + n)]]))
        cluster.run(6.5)
        assert [job.response_s for job in user.done] == [1.0, 2.0, 3.0]


class TestFaults:
    def test_tasks_of_a_crashed_machine_are_launched_again(self) -> None:
        cluster = make_cluster(2)
        ended: list[float] = []
        cluster.framework(
            "f",
            works=[Work(SHAPE, 10.0) for _ in range(8)],
            on_end=lambda _: ended.append(cluster.now),
        )
        cluster.kernel.at(4.0, lambda: crash(cluster.agents[0], down_s=1.0))
        cluster.run(100.0)
        assert ended == [10.0] * 4 + [15.0] * 4

    def test_tasks_survive_an_agent_that_only_restarts(self) -> None:
        cluster = make_cluster(1)
        ended: list[float] = []
        cluster.framework(
            "f",
            works=[Work(SHAPE, 3.0), Work(SHAPE, 10.0)],
            on_end=lambda _: ended.append(cluster.now),
        )
        cluster.kernel.at(2.0, lambda: crash(cluster.agents[0], down_s=5.0, tasks_survive=True))
        cluster.run(100.0)
        assert ended == [7.0, 10.0]

    def test_a_silent_agent_becomes_unreachable_and_returns(self) -> None:
        cluster = make_cluster(1, settings=Settings())
        framework = cluster.framework("f", works=[Work(SHAPE, 500.0)])
        every(cluster.kernel, 30.0, partial(beat, framework))
        cluster.run(80.0)
        # It sent no heartbeat; it registered again, with its task.
        assert "nothing was heard" in str(cluster.agents[0].error)
        assert framework.running == 1
        every(cluster.kernel, 30.0, partial(beat, cluster.agents[0]))
        cluster.run(1000.0)
        assert framework.running == 0

    def test_a_framework_continues_after_failover(self) -> None:
        cluster = make_cluster(1)
        ended: list[float] = []
        framework = cluster.framework(
            "f",
            works=[Work(SHAPE, 10.0) for _ in range(5)],
            on_end=lambda _: ended.append(cluster.now),
        )
        cluster.kernel.at(5.0, partial(disconnect, framework))
        cluster.kernel.at(25.0, framework.connect)
        cluster.run(100.0)
        assert ended == [25.0] * 4 + [35.0]


def run_and_digest(seed: int) -> str:
    """Return a digest of everything that happens in a busy cluster with faults."""
    cluster = make_cluster(6, seed=seed)
    digest = hashlib.sha256()
    cluster.kernel.on_fact = lambda fact: digest.update(f"{cluster.now} {fact}\n".encode())
    for name, shape in (("a", SHAPE), ("b", WIDE)):
        works = [
            Work(shape, cluster.rng.uniform(1, 9), int(cluster.rng.random() < 0.1))
            for _ in range(60)
        ]
        habits = Habits(refuse_s=1.0)
        moody_framework(cluster, name, name, habits, works, think_s=0.1, declines=0.2)
    for agent in cluster.agents[:2]:
        cluster.kernel.at(cluster.rng.uniform(5, 20), partial(crash, agent, 3.0))
    cluster.run(120.0)
    return digest.hexdigest()


class TestDeterminism:
    def test_the_seed_alone_determines_the_history(self) -> None:
        assert run_and_digest(1) == run_and_digest(1)
        assert run_and_digest(1) != run_and_digest(2)
