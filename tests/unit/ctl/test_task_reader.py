"""Refusals of requests about a task, with the next step."""

from __future__ import annotations

from typing import Any

import pytest

from croupier.cli.connection import Master, Refused
from croupier.ctl import task_reader
from croupier.ctl.task_reader import TaskName, advising
from croupier.model.errors import CroupierError, NotFound, Unavailable
from croupier.net.address import Address
from croupier.net.transport import make_channel

ADDRESS = Address("127.0.0.1", 1)
MISSING = "no task 't1' of framework web"
TASKS = "croupier tasks lists the tasks"


@pytest.mark.parametrize(
    ("found", "framework_id", "advice"),
    [
        ({"framework_id": "F1"}, "", TASKS),
        ({"framework_id": "web"}, "web", TASKS),
        (Unavailable("gone"), "web", TASKS),
        (NotFound("no framework 'web'"), "web", "no framework 'web'"),
    ],
)
async def test_a_missing_task_is_told_with_what_is_wrong_with_its_framework(
    monkeypatch: pytest.MonkeyPatch, found: Any, framework_id: str, advice: str
) -> None:
    async def find_framework(master: Master, named: str) -> Any:
        if isinstance(found, CroupierError):
            raise found
        return found

    monkeypatch.setattr(task_reader, "find_framework", find_framework)
    assert await told(NotFound(MISSING), TaskName("t1", framework_id)) == f"{MISSING}; {advice}"


async def test_other_refusals_are_told_with_the_next_step() -> None:
    task = TaskName("t1")
    assert (await told(NotFound("no file 'x'"), task)).endswith("croupier files t1 lists the files")
    several = "several frameworks have a task 't1': F1, F2; name one"
    assert await told(Refused(several), task) == f"{several} by --framework"
    assert await told(Refused("bad path"), task) == "bad path"


async def told(error: CroupierError, task: TaskName) -> str:
    async with make_channel(ADDRESS) as channel:
        with pytest.raises(type(error)) as raised:
            async with advising(task, Master(ADDRESS, channel)):
                raise error
    return str(raised.value)
