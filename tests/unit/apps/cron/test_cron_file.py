"""Reading cron files."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.apps.cron.core.job import Missed, Overlap, ScheduledRun
from croupier.apps.cron.cron_file import CronFile, read_cron_file
from croupier.model.errors import InvalidRequest

FULL = """
name = "nightly"
role = "ops"
timezone = "Europe/Vienna"

[defaults]
retries = 2
missed = "once"
resources = {cpus = 0.5, mem = "64MB"}

[jobs.backup]
schedule = "30 2 * * *"
command = ["./backup.sh", "--full"]
overlap = "queue"
queue = 3
timeout = "2h"

[jobs.report]
schedule = "@weekly"
timezone = "UTC"
shell = "make report"
missed = "all"
catch_up = 4
history = 7
"""


def read(tmp_path: Path, text: str, name: str = "jobs.toml") -> CronFile:
    path = tmp_path / name
    path.write_text(text)
    return read_cron_file(path)


def test_a_full_file(tmp_path: Path) -> None:
    file = read(tmp_path, FULL)
    backup, report = file.jobs
    assert (file.name, file.role) == ("nightly", "ops")
    assert (backup.schedule.zone_name, report.schedule.zone_name) == ("Europe/Vienna", "UTC")
    assert (backup.overlap, backup.queue, backup.retries) == (Overlap.QUEUE, 3, 2)
    assert (backup.missed, report.missed) == (Missed.ONCE, Missed.ALL)
    assert (report.catch_up, report.history) == (4, 7)
    task = file.task(ScheduledRun("backup", 1_800_000_000, attempt=2))
    assert task.task_id == "backup.20270115T080000Z.2"
    assert task.command.argv == ("./backup.sh", "--full")
    assert task.command.environment["CROUPIER_CRON_TIME"] == "20270115T080000Z"
    assert str(task.resources) == "cpus:0.5;mem:64MB"
    assert task.info.max_completion_ms == 7_200_000


def test_a_yaml_file_is_named_after_itself(tmp_path: Path) -> None:
    text = "jobs:\n  a:\n    schedule: '@daily'\n    shell: date\n"
    assert read(tmp_path, text, "cleaning.yaml").name == "cleaning"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "jobs: is missing"),
        ("[jobs]", "jobs: has no jobs"),
        ("[jobs.a]\nshell='x'", "jobs.a.schedule: is missing"),
        ("[jobs.a]\nschedule='@daily'", "a task needs a `command`"),
        ("[jobs.a]\nschedule='0 0 30 2 *'\nshell='x'", "jobs.a.schedule: .*never fires"),
        ("[jobs.a]\nschedul='@daily'\nshell='x'", "jobs.a.schedul: .*did you mean 'schedule'"),
        ("[jobs.a]\nschedule='@daily'\nshell='x'\noverlap='skp'", "did you mean 'skip'"),
        ("[jobs.a]\nschedule='@daily'\nshell='x'\nmissed='never'", "jobs.a.missed"),
        ("[jobs.a]\nschedule='@daily'\nshell='x'\nqueue=0", "jobs.a.queue: must be between"),
        (
            "[jobs.a]\nschedule='@daily'\nshell='x'\ntimezone='Mars'",
            "jobs.a.timezone: no time zone",
        ),
        ("[jobs.'a.b']\nschedule='@daily'\nshell='x'", "is not a name"),
        ("timezone='Mars'\n[jobs.a]\nschedule='@daily'\nshell='x'", "timezone: no time zone"),
        ("name='../x'\n[jobs.a]\nschedule='@daily'\nshell='x'", "name: .* is not a name"),
        ("role='a//b'\n[jobs.a]\nschedule='@daily'\nshell='x'", "role: "),
        ("[defaults]\nschedule='@daily'\n[jobs.a]\nshell='x'", "defaults.schedule: unknown key"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))
