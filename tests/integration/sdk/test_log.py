"""The log of the SDK: the standard logger `croupier.sdk`, never standard output."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest

from croupier.sdk.testing import FakeMaster

PROGRAM = """
import asyncio, logging, sys
from croupier.sdk import Framework

class Faulty(Framework):
    async def on_offers(self, offers):
        print("mine")
        raise ValueError("a bug")

    async def on_failure(self, failure):
        await self.stop()

if sys.argv[2]:
    logging.basicConfig(level=sys.argv[2], format="%(name)s|%(levelname)s|%(message)s")
framework = Faulty(name="faulty", master=sys.argv[1])
framework.run_forever() if sys.argv[3] == "run_forever" else asyncio.run(framework.run())
"""


async def outputs(level: str, method: str) -> tuple[str, str]:
    """Return stdout and stderr of a framework with a faulty handler, which logs at `level`."""
    async with FakeMaster() as master:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, master.address, level, method, stdout=PIPE, stderr=PIPE
        )
        try:
            await master.subscribed()
            master.offer("cpus:1;mem:64MB")
            await master.next_call("decline")
            master.fail_agent("a1")
            async with asyncio.timeout(20):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return out.decode(), err.decode()


@pytest.mark.parametrize("method", ["run_forever", "run"])
async def test_stdout_has_only_the_output_of_the_framework(method: str) -> None:
    out, err = await outputs("", method)
    assert out == "mine\n"
    assert "handler_failed handler=on_offers" in err, "a bug is shown without any configuration"
    assert "ValueError: a bug" in err
    assert "subscribed" not in err, "nothing below a warning is shown"


async def test_a_program_configures_the_log_with_the_logging_module() -> None:
    out, err = await outputs("INFO", "run_forever")
    assert out == "mine\n"
    assert "croupier.sdk|INFO|subscribed framework_id=fake-1-F1 master_id=" in err
    assert "croupier.sdk|ERROR|handler_failed handler=on_offers" in err
