"""The example of docs/cron.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from croupier.apps.cron.cron_file import POLICY_KEYS, read_cron_file
from croupier.apps.cron.listing import print_jobs, print_next
from croupier.apps.job_file.task_spec import TASK_KEYS

PAGE = (Path(__file__).resolve().parents[4] / "docs/cron.md").read_text()


def test_the_example_can_be_read_and_has_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"```toml save: nightly.toml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    path = tmp_path / "nightly.toml"
    path.write_text(found[1])
    file = read_cron_file(path)
    assert [job.name for job in file.jobs] == ["backup", "import", "probe"]
    assert [job.retries for job in file.jobs] == [2, 2, 2]
    print_jobs(file)
    assert "*/5 6-20 * * mon-fri  queue    skip" in capsys.readouterr().out
    print_next(file, "backup", 2, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert re.match(r"\d{4}-\d\d-\d\d 0[23]:[03]0:00 CES?T  backup  ", lines[1])


@pytest.mark.parametrize("key", [*POLICY_KEYS, *TASK_KEYS])
def test_every_key_is_documented(key: str) -> None:
    assert f"`{key}`" in PAGE
