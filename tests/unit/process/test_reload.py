"""A daemon takes changed settings at SIGHUP, and no configuration ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from structlog.testing import capture_logs

from croupier.agent.config import AgentConfig, OutputFlags
from croupier.master.config import MasterConfig
from croupier.model.errors import InvalidRequest
from croupier.process.cli import config_reader
from croupier.process.daemon import Reloader, settings
from tests.harness.eventually import eventually


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@dataclass
class Daemon:
    """The configuration on disk, and what was taken of it."""

    config: AgentConfig | InvalidRequest

    def __post_init__(self) -> None:
        self.taken: list[AgentConfig] = []

    def read(self) -> AgentConfig:
        if isinstance(self.config, InvalidRequest):
            raise self.config
        return self.config

    def reloader(self) -> Reloader[AgentConfig]:
        taken = self.taken.append
        takes = {"attributes": taken, "log_level": taken, "output_size": taken}
        return Reloader(self.read(), self.read, takes)


@asynccontextmanager
async def _running(daemon: Daemon) -> AsyncIterator[None]:
    reloader = daemon.reloader()
    reloader.start()
    try:
        yield
    finally:
        await reloader.stop()


async def test_settings_are_taken_or_named() -> None:
    old = AgentConfig()
    daemon = Daemon(old)
    async with _running(daemon):
        daemon.config = new = replace(
            old, attributes={"rack": "r2"}, hostname="other", output=OutputFlags(output_size=2**26)
        )
        with capture_logs() as logs:
            os.kill(os.getpid(), signal.SIGHUP)
            await eventually(lambda: len(logs) == 2)
        assert [(each["event"], each["log_level"]) for each in logs] == [
            ("config_reloaded", "info"),
            ("restart_needed", "warning"),
        ]
        assert logs[0]["taken"] == ["--attributes", "--output-size"]
        assert logs[1]["settings"] == ["--hostname"]
        assert daemon.taken == [new]
        # What was taken has not changed since; what was not is named each time.
        with capture_logs() as logs:
            os.kill(os.getpid(), signal.SIGHUP)
            await eventually(lambda: len(logs) == 2)
        assert (logs[0]["taken"], logs[1]["settings"]) == ([], ["--hostname"])
        assert daemon.taken == [new]


async def test_what_is_taken_is_logged_before_a_new_log_level_hides_it() -> None:
    old = AgentConfig()
    new, seen = replace(old, log_level="error"), list[str]()
    with capture_logs() as logs:
        takes = {"log_level": lambda _: seen.extend(each["event"] for each in logs)}
        await Reloader(old, lambda: new, takes).reload()
    assert seen == ["config_reloaded"]


async def test_what_is_not_valid_changes_nothing() -> None:
    daemon = Daemon(AgentConfig())
    async with _running(daemon):
        daemon.config = InvalidRequest("--tls-cert: no such file")
        with capture_logs() as logs:
            os.kill(os.getpid(), signal.SIGHUP)
            await eventually(lambda: bool(logs))
        assert [each["event"] for each in logs] == ["config_not_reloaded"]
        assert logs[0]["error"] == "--tls-cert: no such file"
        assert daemon.taken == []


async def test_no_hangup_ends_a_daemon_that_stops() -> None:
    async with _running(Daemon(AgentConfig())):
        pass
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.sleep(0)


def test_two_readings_of_one_configuration_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    from croupier.agent.__main__ import command_line as agent
    from croupier.master.__main__ import command_line as master

    for name in [name for name in os.environ if name.startswith("CROUPIER_")]:
        monkeypatch.delenv(name)
    flags = [
        "--resources",
        "cpus:4;ports:[1-2]",
        "--attributes",
        "rack:r1",
        "--task-uids",
        "2000-2999",
    ]
    monkeypatch.setattr("sys.argv", ["croupier-agent", *flags])
    read = config_reader(agent, AgentConfig)
    assert settings(read()) == settings(read())
    assert settings(read())["attributes"] == {"rack": "r1"}
    monkeypatch.setattr("sys.argv", ["croupier-master", "--weights", "a=2", "--no-preemption"])
    read_master = config_reader(master, MasterConfig)
    assert settings(read_master()) == settings(read_master())
    assert settings(read_master())["preemption"] is False
    monkeypatch.setattr("sys.argv", ["croupier-master"])
    assert settings(read_master()) == settings(MasterConfig())
    monkeypatch.setattr("sys.argv", ["croupier-master", "--lease", "1"])
    with pytest.raises(InvalidRequest, match="--lease"):
        read_master()
