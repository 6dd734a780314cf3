"""Reading cron files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from croupier.apps.cron.core.job import Missed, Overlap, ScheduledRun
from croupier.apps.cron.cron_file import POLICY_KEYS, CronFile, read_cron_file
from croupier.apps.cron.listing import print_jobs, print_next
from croupier.apps.job_file.task_spec import TASK_KEYS
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
    backup, report = file.jobs.values()
    assert (file.name, file.role) == ("nightly", "ops")
    assert (backup.schedule.zone_name, report.schedule.zone_name) == ("Europe/Vienna", "UTC")
    assert (backup.overlap, backup.queue, backup.spec.retries) == (Overlap.QUEUE, 3, 2)
    assert (backup.missed, report.missed) == (Missed.ONCE, Missed.ALL)
    assert (report.catch_up, report.history) == (4, 7)
    (task,) = file.tasks(ScheduledRun("backup", 1_800_000_000, attempt=2))
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


# The example of docs/cron.md.


PAGE = (Path(__file__).resolve().parents[4] / "docs/cron.md").read_text()


def test_the_example_can_be_read_and_has_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"```toml save: nightly.toml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    path = tmp_path / "nightly.toml"
    path.write_text(found[1])
    file = read_cron_file(path)
    retries = {name: job.spec.retries for name, job in file.jobs.items()}
    assert retries == {"backup": 2, "import": 2, "probe": 2}
    print_jobs(file)
    assert "*/5 6-20 * * mon-fri  queue    skip" in capsys.readouterr().out
    print_next(path, "backup", count=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert re.match(r"\d{4}-\d\d-\d\d 0[23]:[03]0:00 CES?T  backup  ", lines[1])


@pytest.mark.parametrize("key", [*POLICY_KEYS, *TASK_KEYS])
def test_every_key_is_documented(key: str) -> None:
    assert f"`{key}`" in PAGE
