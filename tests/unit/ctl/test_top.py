"""`croupier top`: frames that fit, keys, a failover, and a real terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import sys
import termios
from dataclasses import replace

import pytest

from croupier.cli.flags import Target
from croupier.cli.table import text_width
from croupier.ctl.commands.top import MAX_FILTER, Top, pressed, top
from croupier.ctl.top.frame import Display, Terminal, frame
from croupier.ctl.top.snapshot import Page
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.net.address import Address
from tests.harness import recorded_views as recorded
from tests.harness.command import environment
from tests.harness.elections import FakeElection, elected_master, leads
from tests.harness.eventually import eventually
from tests.harness.masters import running_master

FOUND = recorded.snapshot()


@pytest.mark.parametrize("height", [3, 10, 24, 60])
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_frame_is_never_larger_than_the_terminal(width: int, height: int) -> None:
    display = Display(problem="reconnecting: " + "x" * 300, filter="e", is_typing=True)
    many = replace(FOUND, frameworks=Page([FOUND.frameworks.views[0]] * 500))
    for found in (FOUND, many):
        lines = frame(found, display, Terminal(width, height))
        assert len(lines) <= height
        assert all(text_width(line) <= width for line in lines)
        assert all(char.isprintable() for line in lines for char in line)
        assert lines[-1].startswith("filter: e_"[:width])


def test_a_small_terminal_names_what_needs_a_look() -> None:
    """Each section has a row: failed tasks and agents with problems first, then roles."""
    many = Page([FOUND.frameworks.views[0]] * 50)
    lines = frame(replace(FOUND, frameworks=many), Display(), Terminal(60, 24))
    text = "\n".join(lines)
    for views, key in ((FOUND.agents.views, "hostname"), (FOUND.failures.views, "task_id")):
        assert views[0][key] in text
    titles = [line.split(" ")[0].strip(":") for line in lines if ": " in line and line[0].islower()]
    assert titles[-5:-1] == ["failed", "agents", "roles", "frameworks"]
    well = frame(replace(FOUND, agents=Page(), failures=Page()), Display(), Terminal(60, 24))
    assert "no agent has problems" in well
    assert "no task has failed recently in this term" in well


def test_nothing_is_said_by_colour_alone() -> None:
    plain = frame(FOUND, Display(), Terminal(80, 40))
    coloured = "\n".join(frame(FOUND, Display(), Terminal(80, 40, has_colours=True)))
    assert "\x1b[" in coloured
    for code in ("0", "1", "7", "33", "35", "36", "1;31"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured.splitlines() == plain


def test_a_terminal_without_utf_8_gets_other_bars() -> None:
    lines = frame(FOUND, Display(), Terminal(80, is_ascii=True))
    assert "#" in lines[2]
    assert "█" not in "".join(lines)


def test_frameworks_are_filtered_and_sorted() -> None:
    def shown(display: Display) -> list[str]:
        lines = frame(FOUND, display, Terminal(200))
        ids = (re.search(r" 0c1945b\w+(-F\d+) ", line) for line in lines)
        return [found[1] for found in ids if found]

    assert shown(Display("share")) == shown(Display("tasks")) == ["-F12", "-F7"]
    assert shown(Display(filter="ADS")) == ["-F7"]
    assert shown(Display(filter="nothing")) == []


def test_keys() -> None:
    display = Display()
    assert pressed(display, "q") is None
    assert pressed(display, "x\x1b") == display
    assert pressed(display, "\x1b[A") == display, "an arrow"
    assert pressed(display, "s") == Display("tasks")
    assert pressed(display, "ssss") == display
    typed = pressed(display, "/ad\x7fbq")
    assert typed == Display(filter="abq", is_typing=True)
    assert pressed(typed, "\r") == Display(filter="abq")
    assert pressed(typed, "\x1b") == display
    assert pressed(Display(filter="abq"), "\x1b") == display
    assert pressed(typed, "y" * 200) == Display(
        filter="abq" + "y" * (MAX_FILTER - 3), is_typing=True
    )


class Recorder(Top):
    """Draws into a list."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, Display())
        self.problems: list[str] = []

    def draw(self) -> None:
        self.problems.append(self.display.problem)


async def test_it_goes_on_after_a_failover() -> None:
    election = FakeElection()
    async with elected_master(election) as master:
        await election.elect()
        await leads(master, 1)
        top = Recorder(Target((master.address,)))
        asking = asyncio.create_task(top.poll())
        try:

            async def shows(problem: str, epoch: int) -> None:
                def is_shown() -> bool:
                    found = top.found
                    is_new = found is not None and found.master["epoch"] == epoch
                    return is_new and top.problems[-1].startswith(problem)

                await eventually(is_shown)

            await shows("", 1)
            await election.elect_other(None)
            await shows("reconnecting: ", 1)
            await election.elect()
            await shows("", 2)
            assert top.problems[-1] == ""
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


async def test_without_a_master_it_fails_at_once() -> None:
    with pytest.raises(Unavailable):
        await Recorder(Target((Address("127.0.0.1", 1),))).run()


def test_without_a_terminal_it_names_another_way(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidRequest, match="--once"):
        top(master=Target())
    with pytest.raises(Unavailable):
        top(once=True, master=Target((Address("127.0.0.1", 1),)))


async def test_a_real_terminal_is_as_before_at_the_end() -> None:
    async with running_master() as master:
        controller, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, 80))
        before = termios.tcgetattr(terminal)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "croupier.ctl", "top", "--master", str(master.address)),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment(TERM="xterm", PYTHONUTF8="1"),
        )
        seen = bytearray()
        asyncio.get_running_loop().add_reader(
            controller, lambda: seen.extend(os.read(controller, 65536))
        )
        try:
            await eventually(lambda: b"q quit" in seen, 30)
            os.write(controller, b"s")
            await eventually(lambda: b"frameworks by tasks" in seen, 30)
            os.write(controller, b"q")
            assert await asyncio.wait_for(process.wait(), 30) == 0
            assert seen.startswith(b"\x1b[?1049h")
            await eventually(lambda: seen.endswith(b"\x1b[?1049l"))
            assert termios.tcgetattr(terminal) == before
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            asyncio.get_running_loop().remove_reader(controller)
            os.close(controller)
            os.close(terminal)
