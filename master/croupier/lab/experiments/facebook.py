"""Section 7.3 of the DRF paper: a day of MapReduce jobs at Facebook, DRF against slots.

400 nodes of 16 cores and 32 GB, which count as 12 slots each under the slot scheduler, as in the
paper. The paper's trace is not public; the SWIM trace, of the same cluster and month, is. It has
only byte counts: `croupier.lab.jobs` derives tasks, times and demands from them, and
`croupier.sim.machine` models the cost of overcommitted nodes.

Every job is a client of its own, and all are equal. The run begins with the sixth hour, takes one
hour at scale 1 and the rest of the day from scale 19, and ends when all jobs are done. The default
hour has 218,000 tasks and takes minutes; the day has 3.9 million.

The paper: DRF uses more of CPUs and memory; small jobs take as long as before (3 % longer:
their time is that of their longest task), and the larger a job the more it gains, up to 66 %.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean, median

from croupier.lab.cluster import Node, Series, SimulatedCluster, make_allocator
from croupier.lab.jobs import MAPS, REDUCES, Job, make_job, submit
from croupier.lab.traces import SWIM_SOURCE, SwimJob, read_swim
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.sim.experiment import Check, Line, Options, Plot, Progress, Result, Simulated, Table
from croupier.sim.machine import Size
from croupier.sim.work import Shape

EXPECTED = (
    "Section 7.3 of the DRF paper, on the SWIM trace: 400 nodes of 16 cores and 32 GB, DRF\n"
    "against 12 slots a node. DRF uses more of the cluster; the larger a job, the more of its\n"
    "completion time is saved, up to about 66 %; the smallest jobs are much as before."
)

NODES = 400
NODE = Size.of(16, 32)
SLOTS = 12
FIRST_S = 5 * 3600
HOUR_S = 3600
TICK_S = 1.0
SAMPLE_S = 10.0
BINS = (500, 1000, 1500, 2000, 2500, 3000)
# A run ends at most this long after the last job was submitted.
LAST_S = 24 * 3600.0


@dataclass(slots=True)
class FacebookRun:
    """The jobs under one scheduler, and the cluster's use over time."""

    name: str
    jobs: dict[str, Job]
    series: Series
    simulated: Simulated

    def while_waiting(self, what: str) -> float:
        """Return the mean part of `what` in use while tasks waited."""
        waits = self.series.curves["waiting"]
        used = self.series.curves[what]
        parts = [part for (_, part), (_, tasks) in zip(used, waits, strict=True) if tasks]
        return fmean(parts) if parts else 0.0

    @property
    def contended(self) -> float:
        """The part of the time in which tasks waited."""
        waits = self.series.curves["waiting"]
        return sum(tasks > 0 for _, tasks in waits) / len(waits)

    @property
    def finished_at(self) -> float:
        """The time at which the last job was done."""
        return max(job.finished_at or 0.0 for job in self.jobs.values())


def run_jobs(
    name: str,
    trace: list[SwimJob],
    nodes: int,
    uses_slots: bool,
    seed: int,
    progress: Callable[[float], None],
) -> FacebookRun:
    """Run the trace's jobs under DRF or slots; report the part that is done to `progress`."""
    advertised = Resources({"slots": SLOTS * 1000}) if uses_slots else NODE.resources
    cluster = SimulatedCluster(
        (Node(f"n{i}", NODE, advertised) for i in range(nodes)),
        make_allocator(seed=seed),
        seed,
        tick_s=TICK_S,
    )
    shapes = {size: _shape(size, uses_slots) for _, size in (*MAPS, *REDUCES)}
    start = trace[0].submit_s
    busy_until = float(trace[-1].submit_s - start)
    jobs: dict[str, Job] = {}
    left = len(trace)

    def arrive(swim: SwimJob) -> None:
        job = jobs[swim.name] = make_job(swim, seed, shapes)
        submit(cluster, job, on_done=count_done)

    def count_done(_job: Job) -> None:
        nonlocal left
        left -= 1
        progress(1 - left / len(trace))

    for swim in trace:
        cluster.kernel.at(float(swim.submit_s - start), partial(arrive, swim))
    series = Series(cluster.kernel, SAMPLE_S)
    series.watch("waiting", lambda: cluster.waiting)
    series.watch("CPU", lambda: cluster.busy.cpus / cluster.size.cpus)
    series.watch("memory", lambda: cluster.busy.mem / cluster.size.mem)
    cluster.run(busy_until + LAST_S, is_over=lambda: not left)
    return FacebookRun(name, jobs, series, cluster.simulated)


def _shape(size: Size, uses_slots: bool) -> Shape:
    if uses_slots:
        return Shape(Resources({"slots": 1000}), size)
    return Shape(size.resources, size)


def run(options: Options, progress: Progress) -> Result:
    """Run the same jobs under both schedulers; raises InvalidRequest without a valid trace."""
    trace = window(options)
    by_slots = run_jobs(
        "slots", trace, NODES, True, options.seed, lambda done: progress(done / 2, "slots")
    )
    by_drf = run_jobs(
        "DRF", trace, NODES, False, options.seed, lambda done: progress(0.5 + done / 2, "DRF")
    )
    return compare(by_drf, by_slots)


def window(options: Options) -> list[SwimJob]:
    """Return the jobs to run; raises InvalidRequest if there is no valid trace."""
    if options.data is None:
        raise InvalidRequest(f"--data is missing. {SWIM_SOURCE}")
    trace = read_swim(options.data)
    end = FIRST_S + HOUR_S * options.scale
    busy = [job for job in trace if FIRST_S <= job.submit_s < end]
    # A shorter trace is run from its beginning.
    jobs = busy or [job for job in trace if job.submit_s < HOUR_S * options.scale]
    if not jobs:
        raise InvalidRequest(
            f"--scale {options.scale:g}: no job of the trace is submitted in so short a time"
        )
    return jobs


def compare(drf: FacebookRun, slots: FacebookRun) -> Result:
    """Return tables, plots and checks of one run against the other."""
    bins = _bins(drf, slots)
    rows = tuple(
        (
            name,
            len(saved),
            round(fmean(before)),
            round(fmean(after)),
            f"{1 - fmean(after) / fmean(before):+.0%}",
            f"{median(saved):+.0%}",
        )
        for name, before, after, saved in bins
    )
    columns = ("tasks", "jobs", "slots, s", "DRF, s", "saved of the mean", "median saved of a job")
    use: dict[str, Callable[[FacebookRun], object]] = {
        "scheduler": lambda run: run.name,
        "CPU": lambda run: f"{run.while_waiting('CPU'):.0%}",
        "memory": lambda run: f"{run.while_waiting('memory'):.0%}",
        "time with tasks waiting": lambda run: f"{run.contended:.0%}",
        "all done after, s": lambda run: round(run.finished_at),
    }
    return Result(
        _checks(drf, slots, bins),
        (Table("facebook_completion", columns, rows), Table.of("facebook_use", (slots, drf), use)),
        _plots(drf, slots, bins),
        (
            "CPU and memory are mean parts in use while tasks waited",
            f"{len(drf.jobs)} jobs, {sum(job.tasks for job in drf.jobs.values())} tasks",
            *_advice(drf, slots),
        ),
        drf.simulated + slots.simulated,
    )


def _advice(drf: FacebookRun, slots: FacebookRun) -> tuple[str, ...]:
    if drf.contended or slots.contended:
        return ()
    return (f"{UNCONTENDED}, so there was nothing to share; run more with a larger --scale",)


Bin = tuple[str, list[float], list[float], list[float]]


def _bins(drf: FacebookRun, slots: FacebookRun) -> list[Bin]:
    """Group jobs by number of tasks: times under slots and DRF, and the part of each saved."""
    edges = [0, *BINS]
    titles = [f"{low + 1}-{high}" for low, high in pairwise(edges)] + [f"{edges[-1] + 1}-"]
    bins: list[Bin] = [(title, [], [], []) for title in titles]
    for name, after in drf.jobs.items():
        before = slots.jobs[name]
        if before.finished_at is None or after.finished_at is None:
            continue
        _, was, now, saved = bins[bisect_left(BINS, after.tasks)]
        was.append(before.response_s)
        now.append(after.response_s)
        saved.append(1 - after.response_s / before.response_s)
    return [each for each in bins if each[1]]


UNCONTENDED = "nothing was contended: no task waited for room"


def _checks(drf: FacebookRun, slots: FacebookRun, bins: list[Bin]) -> tuple[Check, ...]:
    medians = [median(saved) for _, _, _, saved in bins]
    _, before, after, _ = bins[-1]
    largest = 1 - fmean(after) / fmean(before)
    done = sum(len(each[1]) for each in bins)
    is_contended = drf.contended > 0 or slots.contended > 0

    def contended(what: str, expected: str, got: str, passed: bool) -> Check:
        if is_contended:
            return Check(what, expected, got, passed)
        return Check(what, expected, UNCONTENDED, None)

    return (
        *(_check_use(what, drf, slots) for what in ("CPU", "memory")),
        Check(
            "every job was done under both",
            f"{len(drf.jobs)} jobs",
            f"{done}",
            done == len(drf.jobs) == len(slots.jobs),
        ),
        contended(
            f"jobs of {bins[0][0]} tasks: the part of completion time that is saved, median",
            "about nothing, within 5 %; the paper has -3 %",
            f"{medians[0]:+.1%}",
            abs(medians[0]) <= 0.05,
        ),
        contended(
            f"jobs of {bins[-1][0]} tasks: the part of their mean that is saved",
            "between 33 % and 80 %; the paper has up to 66 %",
            f"{largest:+.0%}",
            0.33 <= largest <= 0.8,
        ),
        contended(
            "larger jobs gain more, by the median",
            "every size more than the smallest, and the largest more than the second smallest",
            ", ".join(f"{each[0]}: {part:+.0%}" for each, part in zip(bins, medians, strict=True)),
            all(part > medians[0] for part in medians[1:]) and medians[-1] >= medians[:2][-1],
        ),
    )


def _check_use(what: str, drf: FacebookRun, slots: FacebookRun) -> Check:
    """Compare the use while tasks wait; not judged if no task waited in one of the runs."""
    title = f"{what} in use while tasks wait for room"
    idle = [run.name for run in (slots, drf) if not run.contended]
    if idle:
        why = UNCONTENDED if len(idle) > 1 else f"no task waited for room under {idle[0]}"
        return Check(title, "more under DRF than under slots", why, None)
    by_slots, by_drf = slots.while_waiting(what), drf.while_waiting(what)
    expected = f"more under DRF than the {by_slots:.1%} of slots"
    return Check(title, expected, f"{by_drf:.1%}", by_drf > by_slots)


def _plots(drf: FacebookRun, slots: FacebookRun, bins: list[Bin]) -> tuple[Plot, ...]:
    # The last tasks may take hours, which would compress the rest of the plot.
    end = 60.0 + max(
        at for run in (drf, slots) for at, part in run.series.curves["CPU"] if part > 0.02
    )
    use = [
        Plot(
            f"facebook_{what.lower()}",
            f"{what} in use, DRF against slots (DRF paper, figure 13)",
            "minutes",
            f"{what} in use, %",
            tuple(
                Line(
                    run.name, [(at / 60, v * 100) for at, v in run.series.curves[what] if at <= end]
                )
                for run in (drf, slots)
            ),
        )
        for what in ("CPU", "memory")
    ]
    of_mean = [
        (float(i), (1 - fmean(after) / fmean(before)) * 100)
        for i, (_, before, after, _) in enumerate(bins)
    ]
    of_jobs = [(float(i), median(saved) * 100) for i, (_, _, _, saved) in enumerate(bins)]
    reduction = Plot(
        "facebook_reduction",
        "Completion time saved by DRF against slots (DRF paper, figure 14)",
        "tasks of the job",
        "saved, %",
        (Line("of the mean completion time", of_mean), Line("median of the jobs", of_jobs)),
        is_bars=True,
        ticks=tuple(each[0] for each in bins),
    )
    return (*use, reduction)
