"""Daemons as units: signals, restarts, the journal, and tasks that live on."""

from __future__ import annotations

import os
import signal

import pytest

from tests.harness.eventually import eventually
from tests.integration.isolation.systemd.conftest import DAEMONS, Units

PRIORITIES = {"error": 3, "warning": 4, "info": 6, "debug": 7}


@pytest.mark.parametrize("daemon", DAEMONS)
async def test_a_reload_ends_no_daemon(units: Units, daemon: str) -> None:
    before = units.pid(daemon)
    units.run("systemctl", "reload", daemon)
    await eventually(
        lambda: any("reload" in event for event in units.events(daemon)), 20, "it was reloaded"
    )
    assert units.pid(daemon) == before


@pytest.mark.parametrize("daemon", DAEMONS)
async def test_a_daemon_that_ended_is_started_again(units: Units, daemon: str) -> None:
    before = units.pid(daemon)
    os.kill(before, signal.SIGTERM)  # a clean exit
    await eventually(lambda: units.pid(daemon) not in (0, before), 60, "it runs again")
    await units.are_ready()


@pytest.mark.parametrize("daemon", DAEMONS)
async def test_the_journal_has_levels(units: Units, daemon: str) -> None:
    lines = units.journal(daemon)
    assert lines
    assert [priority for priority, _ in lines] == [PRIORITIES[line["level"]] for _, line in lines]
