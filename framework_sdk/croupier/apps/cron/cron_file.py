"""Cron files: TOML or YAML, read into jobs and their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.apps.cron.core.job import (
    MAX_QUEUE,
    CronJob,
    Missed,
    Overlap,
    ScheduledRun,
    check_name,
    stamp,
)
from croupier.apps.cron.core.schedule import Schedule, read_zone
from croupier.apps.job_file.section import Section, read_job_file
from croupier.apps.job_file.task_spec import TASK_KEYS, TaskSpec, read_task
from croupier.model.ids import check_role
from croupier.sdk import Task

FILE_KEYS: Final = ("name", "role", "timezone", "defaults", "jobs")
POLICY_KEYS: Final = ("schedule", "timezone", "overlap", "queue", "missed", "catch_up", "history")
MAX_JOBS: Final = 10_000
MAX_HISTORY: Final = 10_000


@dataclass(frozen=True, slots=True)
class CronFile:
    """The jobs of one file.

    Attributes:
        name: names its state file; by default the file's name without its ending.
        jobs: by name.
    """

    path: Path
    name: str
    role: str
    jobs: Mapping[str, CronJob]

    def tasks(self, run: ScheduledRun) -> list[Task]:
        """Return the task of an attempt of a run, and those beside it."""
        return self.jobs[run.job].spec.tasks(
            run.task_id,
            name=f"{self.name}/{run.job}",
            labels={"cron": self.name, "job": run.job, "time": stamp(run.scheduled)},
            env={
                "CROUPIER_CRON_JOB": run.job,
                "CROUPIER_CRON_TIME": stamp(run.scheduled),
                "CROUPIER_CRON_ATTEMPT": str(run.attempt),
            },
        )


def read_cron_file(path: Path) -> CronFile:
    """Read a cron file.

    Raises InvalidRequest if it cannot be read, or has a mistake: a line with its place.
    """
    file = read_job_file(path)
    file.check_keys(FILE_KEYS)
    key = "name" if "name" in file else ""
    name = file.checked(lambda: check_name(file.text("name", path.stem)), key)
    role = file.parsed("role", check_role, "*")
    zone = file.text("timezone", "UTC")
    file.checked(lambda: read_zone(zone), "timezone")
    defaults, task_defaults = file.section("defaults"), TaskSpec()
    if defaults is not None:
        defaults.check_keys((*TASK_KEYS, *POLICY_KEYS[1:]))
        task_defaults = read_task(defaults, keys_checked=True, needs_command=False)
    jobs = {}
    for section in file.required("jobs").sections():
        section.check_keys((*TASK_KEYS, *POLICY_KEYS))
        spec = read_task(section, task_defaults, keys_checked=True)
        jobs[section.name] = _read_job(section, defaults, spec, zone)
    if not jobs:
        raise file.error("has no jobs", "jobs")
    if len(jobs) > MAX_JOBS:
        raise file.error(f"has more than {MAX_JOBS} jobs", "jobs")
    return CronFile(path, name, role, jobs)


def _read_job(section: Section, defaults: Section | None, spec: TaskSpec, zone: str) -> CronJob:
    """Read the policies of a job; those that it does not name are those of `defaults`."""

    def of(key: str) -> Section:
        return section if key in section or defaults is None else defaults

    name = section.checked(lambda: check_name(section.name))
    text = section.text("schedule", "")
    if not text:
        raise section.error('is missing (an example: schedule = "30 2 * * *")', "schedule")
    zone_name = of("timezone").text("timezone", zone)
    of("timezone").checked(lambda: read_zone(zone_name), "timezone")
    overlap = of("overlap").text("overlap", "skip", choices=[str(each) for each in Overlap])
    missed = of("missed").text("missed", "skip", choices=[str(each) for each in Missed])
    return CronJob(
        name=name,
        schedule=section.checked(lambda: Schedule(text, zone_name), "schedule"),
        spec=spec,
        overlap=Overlap(overlap),
        queue=of("queue").whole("queue", 10, least=1, most=MAX_QUEUE),
        missed=Missed(missed),
        catch_up=of("catch_up").whole("catch_up", 10, least=1, most=MAX_QUEUE),
        history=of("history").whole("history", 100, least=1, most=MAX_HISTORY),
    )
