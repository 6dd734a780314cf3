"""The ends of a framework: stop, teardown, removal, and signals."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.sdk import (
    Conflict,
    CroupierError,
    FailedOver,
    Framework,
    InvalidRequest,
    Offer,
    ProtocolViolation,
    Removed,
    TaskState,
    TaskStatus,
    Unavailable,
)
from croupier.sdk.testing import FakeMaster
from tests.harness.eventually import eventually
from tests.integration.sdk.recorder import HASTY, Recorder, running, task

OWN_TASK = r"croupier/sdk/(?!testing)"


@pytest.mark.parametrize("error", [FailedOver, Removed, ProtocolViolation, InvalidRequest])
async def test_a_fatal_error_ends_the_framework_and_its_calls(
    error: type[CroupierError], master: FakeMaster
) -> None:
    framework = Recorder(master.address)
    run = asyncio.create_task(framework.run())
    await master.subscribed()
    master.mute()
    pending = asyncio.create_task(framework.revive())
    await master.next_call("revive")
    master.disconnect(error("over"))
    with pytest.raises(error, match="over"):
        await run
    with pytest.raises(error, match="over"):
        await pending
    with pytest.raises(error):
        await framework.revive()
    assert [type(each) for each in framework.errors] == [error]
    await framework.stop()


async def test_a_framework_that_the_master_refuses_ends(
    caplog: pytest.LogCaptureFixture, master: FakeMaster
) -> None:
    master.refuse_next(InvalidRequest("no such role"))
    with pytest.raises(InvalidRequest, match="no such role"):
        await Framework(master=master.address).run()
    assert [vars(record)["event"] for record in caplog.records] == ["framework_failed"]


async def test_a_master_that_is_not_ready_is_tried_again(master: FakeMaster) -> None:
    master.refuse_next(Unavailable("still recovering"))
    framework = Recorder(master.address)
    async with running(framework, master):
        await eventually(lambda: framework.subscriptions == ["fake-1-F1"])


async def test_a_newer_program_takes_over(master: FakeMaster) -> None:
    old = Recorder(master.address)
    run = asyncio.create_task(old.run())
    await master.subscribed()
    await old.launch(master, task("t1"))
    calling = asyncio.create_task(_call_for_ever(old))
    new = Recorder(master.address, framework_id=old.framework_id)
    async with running(new, master):
        with pytest.raises(FailedOver):
            await run
        with pytest.raises(FailedOver):
            await calling
        await master.update("t1", TaskState.RUNNING)
        await master.acknowledged("t1", 1)
        assert new.states == [("t1", "RUNNING")]
        assert new.subscriptions == ["fake-1-F1"], (
            "the two programs do not replace each other again"
        )


async def _call_for_ever(framework: Recorder) -> None:
    while True:
        await framework.revive()


async def test_a_torn_down_id_is_refused(master: FakeMaster) -> None:
    framework = Recorder(master.address)
    async with running(framework, master) as run:
        await framework.stop(teardown=True)
        await run
    again = Recorder(master.address, framework_id="fake-1-F1")
    with pytest.raises(Removed):
        await again.run()


async def test_stop_sends_calls_under_way(master: FakeMaster) -> None:
    class Last(Recorder):
        async def on_update(self, status: TaskStatus) -> None:
            await super().on_update(status)
            await self.stop()

    framework = Last(master.address)
    run = asyncio.create_task(framework.run())
    await master.subscribed()
    await framework.launch(master, task("t1"))
    await master.update("t1", TaskState.FINISHED)
    await run
    call = await master.next_call("acknowledge")
    assert call.updates == (("t1", 1),)
    await eventually(lambda: not master.is_connected)
    assert framework.errors == []


async def test_a_handler_may_tear_down(master: FakeMaster) -> None:
    class Last(Recorder):
        _settings = replace(HASTY, teardown_timeout_s=60.0)

        async def on_offers(self, offers: list[Offer]) -> None:
            await asyncio.wait_for(self.stop(teardown=True), 30)

    framework = Last(master.address)
    run = asyncio.create_task(framework.run())
    await master.subscribed()
    master.offer("cpus:1")
    await run
    await master.next_call("teardown")
    assert framework.errors == []


async def test_removal_during_teardown_is_not_an_error(master: FakeMaster) -> None:
    framework = Recorder(master.address)
    async with running(framework, master) as run:
        master.mute()
        stopping = asyncio.create_task(framework.stop(teardown=True))
        await master.next_call("teardown")
        # The verdict is lost; the id is gone when the framework subscribes again.
        await stopping
        await run
    assert framework.errors == []


async def test_an_unconfirmed_teardown_still_ends_the_framework() -> None:
    class Hasty(Recorder):
        _settings = replace(HASTY, teardown_timeout_s=0.1)

    framework = Hasty("127.0.0.1:1")
    run = asyncio.create_task(framework.run())
    with pytest.raises(Unavailable, match="teardown"):
        await framework.stop(teardown=True)
    await run


async def test_a_refused_teardown_still_ends_the_framework(master: FakeMaster) -> None:
    framework = Recorder(master.address)
    async with running(framework, master) as run:
        master.refuse_next(Conflict("not now"))
        with pytest.raises(Conflict):
            await framework.stop(teardown=True)
        await run


async def test_stop_cancels_a_handler_that_does_not_return(master: FakeMaster) -> None:
    class Endless(Recorder):
        _settings = replace(HASTY, flush_timeout_s=0.1)
        cancelled = False

        async def on_subscribed(self, framework_id: str) -> None:
            await super().on_subscribed(framework_id)
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled = True
                raise

    framework = Endless(master.address)
    run = asyncio.create_task(framework.run())
    await eventually(lambda: framework.subscriptions == ["fake-1-F1"])
    pending = asyncio.create_task(framework.stop())
    await run
    await pending
    assert framework.cancelled


async def test_no_asyncio_task_still_runs_after_the_end(master: FakeMaster) -> None:
    framework = Recorder(master.address)
    async with running(framework, master):
        await framework.launch(master, task())
        assert [t for t in asyncio.all_tasks() if re.search(OWN_TASK, repr(t))]
        master.mute()
        pending = asyncio.create_task(framework.revive())
        await master.next_call("revive")
        async with asyncio.timeout(20):
            await framework.stop()
        with pytest.raises(Unavailable, match="stopped"):
            await pending
        with pytest.raises(Unavailable, match="stopped"):
            await framework.revive()
    assert [t for t in asyncio.all_tasks() if re.search(OWN_TASK, repr(t))] == []


async def test_run_can_be_cancelled(master: FakeMaster) -> None:
    framework = Recorder(master.address)
    run = asyncio.create_task(framework.run())
    await master.subscribed()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await eventually(lambda: not master.is_connected)
    await framework.stop()


async def test_a_framework_runs_once(framework: Recorder) -> None:
    with pytest.raises(Conflict, match="once"):
        await framework.run()


async def test_a_framework_stopped_before_run_ends_at_once() -> None:
    framework = Recorder("127.0.0.1:1")
    await framework.stop()
    async with asyncio.timeout(20):
        await framework.run()


async def test_stop_does_not_wait_for_an_unreachable_master() -> None:
    class Patient(Recorder):
        _settings = replace(HASTY, flush_timeout_s=60.0)

    framework = Patient("127.0.0.1:1")
    run = asyncio.create_task(framework.run())
    pending = asyncio.create_task(framework.revive())
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await framework.stop()
        await run
    with pytest.raises(Unavailable):
        await pending


async def test_an_exception_in_on_error_does_not_hide_the_error(master: FakeMaster) -> None:
    class Fragile(Recorder):
        async def on_error(self, error: CroupierError) -> None:
            raise ValueError("a bug")

    master.refuse_next(Removed("gone"))
    with pytest.raises(Removed):
        await Fragile(master.address).run()


@pytest.mark.parametrize("teardown", [False, True])
async def test_signals_stop_a_program(tmp_path: Path, teardown: bool) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import sys
            from croupier.sdk import Framework

            print(Framework(name="f", master=sys.argv[1]).run_forever(teardown={teardown}))
            """
        )
    )
    async with FakeMaster() as master:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", str(program), master.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            await master.subscribed()
            process.send_signal(signal.SIGTERM)
            out, err = await asyncio.to_thread(process.communicate, timeout=60)
        finally:
            process.kill()
            process.wait()
        assert (process.returncode, out, err) == (0, "None\n", "")
        assert [call.kind for call in master.calls] == (["teardown"] if teardown else [])
