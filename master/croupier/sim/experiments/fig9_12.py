"""Figures 9 to 12 of the DRF paper (section 7.2): DRF, slots, and fair sharing of CPUs alone.

48 nodes of 8 CPUs and 6 GB for ten minutes. Four users submit jobs of small tasks <1 CPU,
0.5 GB>, four users jobs of large tasks <2 CPUs, 2 GB>; a job has 80 tasks, and who sees a job
done submits the next. Compared: DRF; slots, where a node counts as 3 to 6 slots and a task
takes one whatever its size; and fair sharing of CPUs, which does not look at memory.

The last two overcommit nodes. What that costs is the model of `croupier.sim.machine`.

The paper prints bars without numbers, and says of them (its section 7.2, in other words):

- slots are worse than DRF in throughput and in response time whatever their number: few leave
  nodes idle, many overcommit them;
- CPU fairness completes about as many small jobs as DRF, and far fewer large ones;
- DRF has the lowest response times and the highest throughput overall.

It does not print how long tasks ran. Here a task takes 10 to 30 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from croupier.model.resources import Resources
from croupier.sim.cluster import Cluster, Node
from croupier.sim.engine import make_allocator
from croupier.sim.experiment import Check, Line, Options, Plot, Progress, Result, Simulated, Table
from croupier.sim.jobs import Job, LoopingUser
from croupier.sim.machine import PAGING, Size
from croupier.sim.work import Shape, Work

NODES = 48
NODE = Size.of(8, 6)
SMALL, LARGE = Size.of(1, 0.5), Size.of(2, 2)
USERS = 4
JOB_TASKS = 80
TASK_S = (10.0, 30.0)
RUN_S = 600.0
SLOTS = (3, 4, 5, 6)
REPEATS = 3
PAGINGS = (1.0, 2.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to share: what nodes advertise, and what tasks ask for."""

    name: str
    node: Resources
    small: Resources
    large: Resources


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means over the repeats of a run.

    Attributes:
        small_jobs, large_jobs: completed.
        small_s, large_s: mean response times of those, in seconds.
        cpus, mem: mean parts of all CPUs and memory that were used.
        simulated: by all of them together.
    """

    scheme: str
    small_jobs: float
    large_jobs: float
    small_s: float
    large_s: float
    cpus: float
    mem: float
    simulated: Simulated


def schemes() -> list[Scheme]:
    """DRF, slots, CPU fairness."""
    one = Resources({"slots": 1000})
    slots = [Scheme(f"{s} slots", Resources({"slots": s * 1000}), one, one) for s in SLOTS]
    return [
        Scheme("DRF", _vector(NODE), _vector(SMALL), _vector(LARGE)),
        *slots,
        Scheme("CPU fair", _cpus(NODE), _cpus(SMALL), _cpus(LARGE)),
    ]


def run_scheme(scheme: Scheme, seed: int, paging: float = PAGING) -> Outcome:
    """Ten minutes under one scheme."""
    nodes = [Node(f"n{i}", NODE, scheme.node) for i in range(NODES)]
    cluster = Cluster(nodes, make_allocator(seed=seed), seed, paging=paging)
    shapes = {"small": Shape(scheme.small, SMALL), "large": Shape(scheme.large, LARGE)}
    users = {
        kind: [_user(cluster, f"{kind}{i}", shape) for i in range(USERS)]
        for kind, shape in shapes.items()
    }
    busy: list[tuple[int, int]] = []
    cluster.kernel.watch(5.0, lambda: busy.append((cluster.busy.cpus, cluster.busy.mem)))
    cluster.run(RUN_S)
    done = {kind: [job for user in them for job in user.done] for kind, them in users.items()}
    return Outcome(
        scheme.name,
        len(done["small"]),
        len(done["large"]),
        fmean([job.response_s for job in done["small"]] or [RUN_S]),
        fmean([job.response_s for job in done["large"]] or [RUN_S]),
        fmean(cpus for cpus, _ in busy) / cluster.size.cpus,
        fmean(mem for _, mem in busy) / cluster.size.mem,
        cluster.simulated,
    )


def _user(cluster: Cluster, name: str, shape: Shape) -> LoopingUser:
    def make_job(number: int) -> Job:
        works = [Work(shape, cluster.rng.uniform(*TASK_S)) for _ in range(JOB_TASKS)]
        return Job(f"{name}-{number}", [works])

    return LoopingUser(cluster, name, make_job)


class Figures9To12:
    """The experiment."""

    name = "drf-paper-fig9-12"
    expected = (
        "Section 7.2 of the DRF paper: in ten minutes DRF completes the most jobs of both kinds\n"
        "with the shortest mean response times; 3 slots leave nodes idle, 6 overcommit memory;\n"
        "CPU fairness completes about as many small jobs, and far fewer large ones."
    )

    def run(self, options: Options, progress: Progress) -> Result:
        """Run each scheme with several seeds, and again with other costs of paging."""
        every = schemes()
        runs = [(PAGING, REPEATS), *((paging, 1) for paging in PAGINGS)]
        of_all = sum(repeats for _, repeats in runs) * len(every)
        outcomes: dict[float, list[Outcome]] = {}
        number = 0
        for paging, repeats in runs:
            outcomes[paging] = []
            for scheme in every:
                each = []
                for repeat in range(repeats):
                    progress(number / of_all, f"{scheme.name}, paging {paging:g}")
                    each.append(run_scheme(scheme, options.seed + repeat, paging))
                    number += 1
                outcomes[paging].append(_mean(each))
        return _result(outcomes)


def _mean(each: list[Outcome]) -> Outcome:
    def mean(field: str) -> float:
        return fmean(getattr(outcome, field) for outcome in each)

    fields = ("small_jobs", "large_jobs", "small_s", "large_s", "cpus", "mem")
    simulated = sum((outcome.simulated for outcome in each), Simulated(0, 0))
    small_jobs, large_jobs, small_s, large_s, cpus, mem = map(mean, fields)
    return Outcome(each[0].scheme, small_jobs, large_jobs, small_s, large_s, cpus, mem, simulated)


def _vector(size: Size) -> Resources:
    return Resources({"cpus": size.cpus, "mem": size.mem})


def _cpus(size: Size) -> Resources:
    return Resources({"cpus": size.cpus})


def _result(outcomes: dict[float, list[Outcome]]) -> Result:
    main = outcomes[PAGING]
    rows = tuple(
        (
            o.scheme,
            round(o.large_jobs, 1),
            round(o.small_jobs, 1),
            round(o.large_s, 1),
            round(o.small_s, 1),
            f"{o.cpus:.0%}",
            f"{o.mem:.0%}",
        )
        for o in main
    )
    columns = (
        "scheme",
        "large jobs",
        "small jobs",
        "large job, s",
        "small job, s",
        "CPU",
        "memory",
    )
    sensitivity = tuple(
        (f"{paging:g}", o.scheme, round(o.large_jobs, 1), round(o.small_jobs, 1))
        for paging in sorted(outcomes)
        for o in outcomes[paging]
    )
    return Result(
        _checks(main),
        (
            Table("fig9_12", columns, rows),
            Table(
                "fig9_12_paging",
                ("cost of paging", "scheme", "large jobs", "small jobs"),
                sensitivity,
            ),
        ),
        _plots(main),
        (f"means of {REPEATS} runs of {RUN_S:.0f} virtual seconds; paging costs {PAGING:g}",),
        sum((o.simulated for each in outcomes.values() for o in each), Simulated(0, 0)),
    )


def _checks(main: list[Outcome]) -> tuple[Check, ...]:
    drf, others = main[0], main[1:]
    cpu = main[-1]
    few, many = main[1], main[len(SLOTS)]

    def best(what: str, field: str, most: bool) -> Check:
        value = getattr(drf, field)
        other = (max if most else min)(others, key=lambda o: getattr(o, field))
        against = getattr(other, field)
        return Check(
            f"{what}: DRF is best",
            f"{'more' if most else 'less'} than {against:.1f} ({other.scheme}, the best other)",
            f"{value:.1f}",
            value > against if most else value < against,
        )

    return (
        best("large jobs completed (figure 9)", "large_jobs", most=True),
        best("small jobs completed (figure 10)", "small_jobs", most=True),
        best("mean response of large jobs (figure 11)", "large_s", most=False),
        best("mean response of small jobs (figure 12)", "small_s", most=False),
        Check(
            "few slots leave CPUs idle",
            "less than 65 % of CPUs used with 3 slots, more than 80 % under DRF",
            f"{few.cpus:.0%} and {drf.cpus:.0%}",
            few.cpus < 0.65 < 0.8 < drf.cpus,
        ),
        Check(
            "many slots overcommit memory, to the cost of large jobs",
            f"fewer large jobs with {SLOTS[-1]} slots than with {SLOTS[0]}",
            f"{many.large_jobs:.1f} and {few.large_jobs:.1f}",
            many.large_jobs < few.large_jobs,
        ),
        Check(
            "CPU fairness: large jobs suffer far more than small ones",
            "large jobs lose more against DRF, in parts of what DRF completes",
            f"large {cpu.large_jobs / drf.large_jobs - 1:+.0%}, "
            f"small {cpu.small_jobs / drf.small_jobs - 1:+.0%}",
            cpu.large_jobs / drf.large_jobs < cpu.small_jobs / drf.small_jobs,
        ),
    )


def _plots(main: list[Outcome]) -> tuple[Plot, ...]:
    ticks = tuple(o.scheme for o in main)

    def bars(name: str, title: str, y_label: str, *fields: tuple[str, str]) -> Plot:
        lines = tuple(
            Line(label, [(i, getattr(o, field)) for i, o in enumerate(main)])
            for label, field in fields
        )
        return Plot(name, title, "scheme", y_label, lines, is_bars=True, ticks=ticks)

    return (
        bars(
            "fig9_10_jobs",
            "Jobs completed in ten minutes (DRF paper, figures 9 and 10)",
            "jobs completed",
            ("large jobs", "large_jobs"),
            ("small jobs", "small_jobs"),
        ),
        bars(
            "fig11_12_response",
            "Mean response time of completed jobs (DRF paper, figures 11 and 12)",
            "response time, s",
            ("large jobs", "large_s"),
            ("small jobs", "small_s"),
        ),
    )


EXPERIMENT = Figures9To12()
