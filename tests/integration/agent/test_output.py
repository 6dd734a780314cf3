"""Output of tasks, readiness and metrics over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from croupier.agent import served_files
from croupier.model.ids import AgentId
from croupier.model.output_bound import OutputBound
from croupier.model.task import TaskState
from croupier.net.output_links import VALID_S, derive_key, signed_link
from tests.harness.eventually import eventually
from tests.harness.promtool import check_metrics
from tests.harness.scripted_master import F, ScriptedMaster, program, shell
from tests.integration.agent.conftest import Serving, Start

FINISHED, RUNNING = TaskState.FINISHED, TaskState.RUNNING


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session


def url(serving: Serving, path: str) -> URL:
    return URL(f"http://{serving.agent.http_address}{path}", encoded=True)


async def get(client: aiohttp.ClientSession, serving: Serving, path: str) -> tuple[int, str]:
    async with client.get(url(serving, path)) as response:
        return response.status, await response.text()


async def test_a_task_that_wrote_nothing_has_empty_output(
    serving: Serving, master: ScriptedMaster, client: aiohttp.ClientSession
) -> None:
    master.launch(program("t1", "true"), program("t2", "sleep", "60"))
    await master.state("t1", FINISHED)
    for query in ("", "?follow=1", "?tail=5", "?offset=7"):
        assert await get(client, serving, f"/output/{F}/t1/stdout{query}") == (200, "")
    await master.state("t2", RUNNING)
    assert await get(client, serving, f"/output/{F}/t2/stderr") == (200, "")
    assert (await get(client, serving, f"/output/{F}/t3/stdout"))[0] == 404


async def test_silent_tasks_leave_their_directory_to_the_next_and_have_empty_output(
    serving: Serving, master: ScriptedMaster, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    sandboxes = tmp_path / "work" / "sandboxes"
    known = serving.agent.state.tasks
    left: set[str] = set()
    # On a busy machine few end within 5 ms; the others keep their directories.
    for count in range(1, 200):
        master.launch(program(f"t{count - 1}", "true"))
        await master.state(f"t{count - 1}", FINISHED)
        await eventually(lambda: not known, what="the end is acknowledged")
        left = {path.name for path in sandboxes.glob("*/*")}
        if count >= 20 and len(left) < count:
            break
    assert 0 < len(left) < count
    for number in range(count):
        assert await get(client, serving, f"/output/{F}/t{number}/stdout") == (200, "")
        status, listed = await get(client, serving, f"/files/{F}/t{number}?list=1")
        names = [each["name"] for each in json.loads(listed)["entries"]]
        assert (status, set(names) <= {"stdout", "stderr"}) == (200, True)
    gone = next(f"t{number}" for number in range(count) if f"t{number}" not in left)
    master.statuses.clear()
    master.launch(program(gone, "true"))
    dropped = await master.state(gone, TaskState.DROPPED)
    assert dropped.message.startswith("a task of this id has run on this agent before")


async def test_ranges_of_output(
    serving: Serving, master: ScriptedMaster, client: aiohttp.ClientSession
) -> None:
    master.launch(shell("t1", "printf 'one\\ntwo\\nthree\\n'"))
    await master.state("t1", FINISHED)
    path = f"/output/{F}/t1/stdout"
    assert await get(client, serving, f"{path}?offset=4&limit=3") == (200, "two")
    assert await get(client, serving, f"{path}?tail=2") == (200, "two\nthree\n")
    assert await get(client, serving, f"{path}?tail_bytes=6&limit=2") == (200, "th")
    assert (await get(client, serving, f"{path}?tail=1&offset=1"))[0] == 400
    ranges = {
        "bytes=4-6": (206, "two", "bytes 4-6/14"),
        "bytes=-3": (206, "ee\n", "bytes 11-13/14"),
    }
    for header, (status, text, told) in ranges.items():
        async with client.get(url(serving, path), headers={"Range": header}) as response:
            assert (response.status, await response.text()) == (status, text)
            assert response.headers["Content-Range"] == told
            assert response.headers["Croupier-Size"] == "14"
    async with client.get(url(serving, path), headers={"Range": "bytes=99-"}) as response:
        assert (response.status, response.headers["Content-Range"]) == (416, "bytes */14")


async def test_files_of_a_sandbox(
    serving: Serving, master: ScriptedMaster, client: aiohttp.ClientSession
) -> None:
    master.launch(shell("t1", "mkdir d; printf 0123456789 >'d/a b'; mkfifo d/p; echo x"))
    await master.state("t1", FINISHED)
    path = f"/files/{F}/t1"
    async with client.get(url(serving, f"{path}?list=1&path=d")) as response:
        listed = await response.json()
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert [(each["name"], each["size"]) for each in listed["entries"]] == [("a b", 10), ("p", 0)]
    assert await get(client, serving, f"{path}?path=d/a%20b&offset=4&limit=3") == (200, "456")
    assert await get(client, serving, f"{path}?path=stdout&follow=1") == (200, "x\n")
    for wrong in ("path=../t1/stdout", "path=%2fetc%2fpasswd", "path=d", "path=", "path=d%00"):
        assert (await get(client, serving, f"{path}?{wrong}"))[0] == 400
    for missing in ("path=d/p", "path=none", "list=1&path=none"):
        assert (await get(client, serving, f"{path}?{missing}"))[0] == 404


async def test_a_follower_of_bounded_output_knows_each_offset(
    serving: Serving, master: ScriptedMaster, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    # 16 bytes a line, each with its number; the task waits until half is trimmed.
    line = "seq -f %015.0f 0 39999; while ! test -e go; do sleep 0.02; done; echo end"
    info = replace(shell("t1", line), output=OutputBound(64 * 1024, 2))
    master.launch(info)
    await master.state("t1", RUNNING)
    path = f"/output/{F}/t1/stdout"

    async def is_trimmed() -> bool:
        async with client.get(url(serving, path + "?limit=16")) as response:
            begin = int(response.headers["Croupier-Offset"])
            assert not begin or await response.text() == f"{begin // 16:015d}\n"
        return begin == 64 * 1024 * 8

    await eventually(is_trimmed)
    async with client.get(url(serving, path + "?follow=1")) as response:
        begin = int(response.headers["Croupier-Offset"])
        assert begin == 64 * 1024 * 8
        (tmp_path / "work" / "sandboxes" / F / "t1" / "go").touch()
        kept = await response.text()
    assert kept == "".join(f"{n:015d}\n" for n in range(begin // 16, 40_000)) + "end\n"


async def test_following_lasts_until_the_task_ends(
    serving: Serving, master: ScriptedMaster, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    master.launch(shell("t1", "echo one; while ! test -e go; do sleep 0.02; done; echo two"))
    await master.state("t1", RUNNING)
    async with client.get(url(serving, f"/output/{F}/t1/stdout?follow=1")) as response:
        assert await response.content.readline() == b"one\n"
        (tmp_path / "work" / "sandboxes" / F / "t1" / "go").touch()
        assert await response.content.read() == b"two\n"
    await master.state("t1", FINISHED)


async def test_a_reader_that_disconnects_is_released(
    serving: Serving, master: ScriptedMaster, client: aiohttp.ClientSession
) -> None:
    master.launch(shell("t1", "echo; sleep 60"))
    await master.state("t1", RUNNING)
    async with client.get(url(serving, f"/output/{F}/t1/stdout?follow=1")) as response:
        await response.content.readline()
        response.close()
    await serving.end()


async def test_one_address_cannot_take_all_readers(
    serving: Serving,
    master: ScriptedMaster,
    client: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served_files, "READERS_PER_HOST", 1)
    master.launch(shell("t1", "echo; sleep 60"))
    await master.state("t1", RUNNING)
    path = f"/output/{F}/t1/stdout"
    async with client.get(url(serving, path + "?follow=1")) as first:
        assert first.status == 200
        assert await first.content.readline() == b"\n"
        async with client.get(url(serving, path)) as second:
            assert (second.status, second.headers["Retry-After"]) == (503, "5")
            assert "too many readers" in await second.text()
        other = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with aiohttp.ClientSession(connector=other) as elsewhere:
            assert await get(elsewhere, serving, path) == (200, "\n")


async def test_a_slow_reader_yields_to_a_new_one(
    serving: Serving,
    master: ScriptedMaster,
    client: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served_files, "READERS_PER_HOST", 1)
    monkeypatch.setattr(served_files, "SLOW_S", 0.1)
    master.launch(shell("t1", "head -c 20000000 /dev/zero"))
    await master.state("t1", FINISHED)
    path = f"/output/{F}/t1/stdout"
    async with client.get(url(serving, path)) as slow:
        assert slow.status == 200

        async def has_room() -> bool:
            return (await get(client, serving, path + "?limit=1"))[0] == 200

        await eventually(has_room)
        with pytest.raises(aiohttp.ClientError):
            await slow.read()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/output/{F}/none/stdout", 404),
        (f"/output/{F}/none/stdout?follow=1", 404),
        (f"/output/{F}/t1/secret", 404),
        (f"/output/{F}/t1/stdout?offset=-1", 400),
        (f"/output/{F}/t1/stdout?offset=x", 400),
        (f"/output/{F}/t1/stdout?offset={2**62}", 200),
        (f"/output/{F}/t1/stdout?offset={2**62 + 1}", 400),
        (f"/output/{F}/t1/stdout?offset={'9' * 4000}", 400),
        (f"/output/{F}/%2e%2e/stdout", 400),
        ("/output/..%2f..%2f/t1/stdout", 400),
        (f"/output/{F}/t%0a1/stdout", 400),
        (f"/output/{F}/..%2f{F}%2ft1/stdout", 400),
    ],
)
async def test_missing_and_forbidden_paths_are_refused(
    serving: Serving, master: ScriptedMaster, client: aiohttp.ClientSession, path: str, status: int
) -> None:
    master.launch(program("t1", "true"))
    await master.state("t1", FINISHED)
    assert (await get(client, serving, path))[0] == status


async def test_links_in_place_of_output_are_not_served(
    serving: Serving, master: ScriptedMaster, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    (secret := tmp_path / "secret").write_text("secret")
    wait = "until [ -e stdout ] && [ -e stderr ]; do sleep 0.01; done"
    master.launch(
        shell("t1", f"{wait}; rm stdout stderr; ln -s {secret} stdout; ln {secret} stderr"),
        shell("t2", f"{wait}; rm stdout; mkfifo stdout"),
    )
    await master.state("t1", FINISHED)
    await master.state("t2", FINISHED)
    for path in ("t1/stdout", "t1/stderr", "t2/stdout"):
        status, body = await get(client, serving, f"/output/{F}/{path}")
        assert status == 404
        assert "secret" not in body


async def test_output_needs_a_link_if_the_master_requires_it(
    start: Start,
    master: ScriptedMaster,
    client: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master.link_key = derive_key("secret", AgentId("A1"))
    serving = await start()
    await master.agent()
    master.launch(shell("t1", "printf hello"), shell("t2", "echo; sleep 60"))
    await master.state("t1", FINISHED)
    await master.state("t2", RUNNING)
    path, expires = f"/output/{F}/t1/stdout", int(time.time()) + VALID_S
    link = signed_link(master.link_key, path, expires)
    other = derive_key("secret", AgentId("A2"))
    for wanted, status in {
        path: 401,
        f"{path}?expires={expires}": 403,
        signed_link(other, path, expires): 403,
        signed_link(master.link_key, path, expires - 3600): 403,
        signed_link(master.link_key, path, expires + 3600): 403,
        link.replace("t1", "t2"): 403,
        link.replace("stdout", "stderr"): 403,
        f"{link}&expires={expires + 1}": 403,
        link + "&offset=2": 200,
        link: 200,
    }.items():
        async with client.get(url(serving, wanted)) as response:
            assert response.status == status, wanted
            is_refused = status in (401, 403)
            assert ("CroupierLink" in response.headers.get("WWW-Authenticate", "")) == is_refused
    async with client.head(url(serving, link + "&follow=1")) as response:
        assert (response.status, await response.read()) == (200, b"")
    for method in ("POST", "PUT", "DELETE"):
        async with client.request(method, url(serving, link)) as response:
            assert response.status == 405
    # A follower continues with a new link.
    monkeypatch.setattr(served_files, "FOLLOW_S", 0.1)
    following = signed_link(master.link_key, f"/output/{F}/t2/stdout", expires) + "&follow=1"
    async with client.get(url(serving, following)) as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_readiness_needs_a_registration(
    start: Start, master: ScriptedMaster, client: aiohttp.ClientSession
) -> None:
    master.is_silent = True
    serving = await start()
    await master.agent()
    assert await get(client, serving, "/readyz") == (503, "waiting for a master\n")
    master.is_silent = False
    master.hang_up()
    await eventually(lambda: serving.agent.link.is_registered)
    assert await get(client, serving, "/readyz") == (200, "ready\n")
    assert (await get(client, serving, "/healthz"))[0] == 200


async def test_metrics_have_the_right_values_and_names(
    serving: Serving, master: ScriptedMaster, client: aiohttp.ClientSession
) -> None:
    master.launch(
        program("t1", "true"),
        program("t2", "/no/such"),
        program("t3", "sleep", "60", resources="cpus:1;mem:512MB;ports:[31000-31009]"),
    )
    await master.state("t1", FINISHED)
    await master.state("t3", RUNNING)

    def is_acknowledged() -> bool:
        (*others, last) = serving.agent.state.tasks.values()
        return not others and not last.updates.waiting

    await eventually(is_acknowledged)
    _, text = await get(client, serving, "/metrics")
    for line in (
        "croupier_agent_registered 1.0",
        'croupier_agent_resources{resource="mem",state="used"} 5.36870912e+08',
        'croupier_agent_resources{resource="cpus",state="total"} 4.0',
        'croupier_agent_resources{resource="ports",state="used"} 10.0',
        'croupier_agent_tasks{state="RUNNING"} 1.0',
        'croupier_agent_task_transitions_total{reason="NONE",state="FINISHED"} 1.0',
        'croupier_agent_status_updates_total{outcome="sent"} 7.0',
        'croupier_agent_container_errors_total{step="exec"} 1.0',
        "croupier_agent_launch_seconds_count 2.0",
        'croupier_agent_recovered_tasks_total{outcome="running"} 0.0',
        "croupier_agent_recovery_errors_total 0.0",
        "croupier_agent_unacknowledged_updates 0.0",
    ):
        assert line in text.splitlines()
    assert _value(text, "croupier_agent_checkpoint_commit_seconds_count") >= 3
    assert _value(text, "croupier_agent_checkpoint_bytes_total") > 500
    check_metrics(text)


def _value(text: str, name: str) -> float:
    """Return the value of a metric without labels."""
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))
