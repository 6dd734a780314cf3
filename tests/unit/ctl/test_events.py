"""`croupier events`: its lines, its request, and a failover."""

from __future__ import annotations

import asyncio
import json

import pytest

from croupier.cli.flags import Target
from croupier.ctl.commands.events import first_request, print_events
from croupier.ctl.views.described import event_lines
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.net.address import Address
from tests.harness.elections import FakeElection, elected_master, leads
from tests.harness.eventually import eventually
from tests.harness.masters import RawAgent, running_master

TASK_ID = "5f1c0e1a-0000-4000-8000-0123456789ab-and-a-long-name"
FAILED = {
    "id": "3-7",
    "time_ms": 1_800_000_000_000,
    "kind": "task-failed",
    "text": f"Task {TASK_ID} of c-3-F1 failed on agent a1 [MEMORY_LIMIT]: \x1b[31mkilled",
    "agent_id": "a1",
    "framework_id": "c-3-F1",
    "task_id": TASK_ID,
    "role": "ads",
}

GOLDEN = {
    None: f"""\
2027-01-15T08:00:00Z task-failed            Task {TASK_ID} of c-3-F1 failed on agent a1 \
[MEMORY_LIMIT]: \\x1b[31mkilled
""",
    40: f"""\
08:00:00 Task
  {TASK_ID}
  of c-3-F1 failed on agent a1
  [MEMORY_LIMIT]: \\x1b[31mkilled
""",
    80: f"""\
2027-01-15T08:00:00Z task-failed            Task
                                            {TASK_ID}
                                            of c-3-F1 failed on agent a1
                                            [MEMORY_LIMIT]: \\x1b[31mkilled
""",
    200: f"""\
2027-01-15T08:00:00Z task-failed            Task {TASK_ID} of c-3-F1 failed on agent a1 \
[MEMORY_LIMIT]: \\x1b[31mkilled
""",
}


@pytest.mark.parametrize("width", GOLDEN)
def test_lines_fit_and_never_split_an_id(width: int | None) -> None:
    assert "".join(f"{line}\n" for line in event_lines(FAILED, width)) == GOLDEN[width]


def test_a_time_out_of_range_does_not_break_the_line() -> None:
    assert event_lines({**FAILED, "time_ms": 2**63}, None)[0].startswith("? ")


def test_since_is_a_duration_or_an_id() -> None:
    assert first_request(since="3-1042").since == "3-1042"
    within = first_request(since="1h30m")
    assert (within.since, within.within_ms) == ("", 5_400_000)
    assert not first_request().HasField("within_ms")
    assert first_request(limit=10**30).limit == 2**32 - 1
    with pytest.raises(InvalidRequest, match="nor the id of an event"):
        first_request(since="yesterday")


async def test_a_follower_goes_on_after_a_failover(capsys: pytest.CaptureFixture[str]) -> None:
    election, out, err = FakeElection(), "", ""

    async def printed(*wanted: str) -> None:
        def has_all() -> bool:
            nonlocal out, err
            found = capsys.readouterr()
            out, err = out + found.out, err + found.err
            return all(each in out + err for each in wanted)

        await eventually(has_all)

    async with elected_master(election) as master:
        await election.elect()
        await leads(master, 1)
        target = Target((master.address,))
        request = first_request(kinds=("agent", "term-began"), follow=True)
        reading = asyncio.create_task(print_events(target, request))
        await printed("-1 began to lead")
        async with RawAgent(master.address) as agent:
            await agent.register(agent_id="a1")
            await printed("(a1) registered")
        assert err == ""
        await election.elect_other(None)
        await printed("connection to the master was lost")
        await election.elect()
        await printed("events may be missing here: another term", "-2 began to lead")
        assert err.count("events may be missing") == err.count("was lost") == 1
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_events_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    def printed() -> list[str]:
        # The master of the test logs to the same place.
        lines = capsys.readouterr().out.splitlines()
        return [each for each in lines if each.startswith(('{"id"', '{"reset"'))]

    async with running_master() as master:
        target = Target((master.address,))
        await print_events(target, first_request("9-9"), as_json=True)
        reset, event = map(json.loads, printed())
        assert reset["last_id"] == "1-1"
        assert (event["id"], event["kind"]) == ("1-1", "term-began")
        await print_events(target, first_request("1-1"), as_json=True)
        assert printed() == []
        # As a wrong word that the command itself can check: exit code 2.
        with pytest.raises(InvalidRequest, match="no kind of event is called 'foo'"):
            await print_events(target, first_request(kinds=("foo",)))


async def test_without_a_master_it_fails_at_once() -> None:
    request = first_request("3-7", follow=True)
    with pytest.raises(Unavailable):
        await print_events(Target((Address("127.0.0.1", 1),)), request)
