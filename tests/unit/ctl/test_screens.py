"""Golden screens of commands; `--rewrite` accepts what they print now.

The objects are recorded, so no cluster runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from croupier.api.objects import as_object
from croupier.cli.table import text_width
from croupier.cli.terminal import wrapped
from croupier.ctl.top.frame import Display, Terminal, frame
from croupier.ctl.views import described as pages
from croupier.ctl.views.described import event_section
from croupier.ctl.views.framework import why_lines
from croupier.ctl.views.task import task_lines
from croupier.model.printable import printable
from tests.harness import recorded_views as recorded
from tests.harness.golden import check_golden

SCREENS = Path(__file__).parent / "screens"
WIDTHS = (40, 80, 200)
VIEWS = recorded.described()

Screen = Callable[[int], Iterable[str]]


def described_task(width: int) -> Iterable[str]:
    yield from task_lines(as_object(recorded.TASKS[0]))
    yield from event_section(recorded.EVENTS, width)


def top(width: int) -> Iterable[str]:
    # As `--once` prints it.
    return (each.rstrip() for each in frame(recorded.snapshot(), Display(), Terminal(width)))


COMMANDS: dict[str, Screen] = {
    "describe_agent": lambda width: pages.agent_page(VIEWS["agent"], width),
    "describe_framework": lambda width: pages.framework_page(VIEWS["framework"], width),
    "describe_role": lambda width: pages.role_page(VIEWS["role"], width),
    "describe_task": described_task,
    "top": top,
    "why": lambda _: why_lines(as_object(recorded.EXPLANATION), ""),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_screen_is_as_it_was_accepted(
    command: str, width: int, request: pytest.FixtureRequest
) -> None:
    lines = [printable(line) for line in wrapped(COMMANDS[command](width), width)]
    check(request, f"{command}.{width}.txt", lines)
    wide = [line for line in lines if text_width(line) > width]
    # Only a word that is never split may be too long.
    assert all(len(line.split()) == 1 or "  " in line.strip() for line in wide), wide


def check(request: pytest.FixtureRequest, name: str, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    assert all(char.isprintable() or char == "\n" for char in text)
    check_golden(request, SCREENS / name, text)
