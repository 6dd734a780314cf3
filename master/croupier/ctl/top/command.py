"""Running `croupier top`: asking the master, drawing, keys, and reconnecting.

Rule: it takes at most a tenth of the master's time that it measures: slow answers are asked for
less often.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any, Final

from croupier.cli.connection import connected, run
from croupier.cli.flags import Target
from croupier.ctl.top.frame import Display, frame
from croupier.ctl.top.screen import Screen, terminal_now
from croupier.ctl.top.snapshot import Snapshot, take_snapshot
from croupier.model.errors import InvalidRequest, Unavailable

REFRESH_S: Final = 1.0
# The pause is at least this many times the time of the answers.
PAUSE_FACTOR: Final = 9.0


def print_once(target: Target, display: Display, *, as_json: bool) -> None:
    """Print one frame, or what it shows as JSON.

    Raises:
        CroupierError: if no master can be reached, or the master refuses.
    """
    found = run(target, take_snapshot)
    if as_json:
        print(json.dumps(_json(found), indent=2))
        return
    for line in frame(found, display, terminal_now(is_live=False)):
        print(line.rstrip())


def run_top(target: Target, display: Display) -> None:
    """Show frames until the user quits.

    Raises:
        InvalidRequest: if stdout is no terminal.
        CroupierError: if no master can be reached at first, or the master refuses.
    """
    if not sys.stdout.isatty():
        raise InvalidRequest("stdout is not a terminal; croupier top --once prints one frame")
    asyncio.run(Top(target, display).run())


class Top:
    """The cluster on a screen, whichever master leads."""

    def __init__(self, target: Target, display: Display) -> None:
        self.display = display
        self.found: Snapshot | None = None
        self._target = target
        self._screen: Screen | None = None
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Show frames until the user quits; raises as `run_top`."""
        asking = asyncio.create_task(self.poll())
        waiting = asyncio.create_task(self._is_over.wait())
        try:
            await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                await asking
        finally:
            asking.cancel()
            waiting.cancel()
            await asyncio.gather(asking, waiting, return_exceptions=True)
            if self._screen is not None:
                self._screen.close()

    async def poll(self) -> None:
        """Ask whichever master leads, again and again.

        Raises:
            CroupierError: if there is none at first, or the master refuses.
        """
        while True:
            try:
                async with connected(self._target) as master:
                    while True:
                        begun = asyncio.get_running_loop().time()
                        self.found = await take_snapshot(master)
                        self.display = replace(self.display, problem="")
                        self.draw()
                        took_s = asyncio.get_running_loop().time() - begun
                        await asyncio.sleep(max(REFRESH_S - took_s, took_s * PAUSE_FACTOR))
            except Unavailable as error:
                if self.found is None:
                    raise
                self.display = replace(self.display, problem=f"reconnecting: {error}")
                self.draw()
                await asyncio.sleep(REFRESH_S)

    def draw(self) -> None:
        """Draw the latest state."""
        if self._screen is None:
            self._screen = Screen(self._on_keys, self.draw)
        if self.found is not None:
            self._screen.draw(frame(self.found, self.display, terminal_now(is_live=True)))

    def _on_keys(self, keys: str) -> None:
        display = pressed(self.display, keys)
        if display is None:
            self._is_over.set()
            return
        self.display = display
        self.draw()


def _json(found: Snapshot) -> dict[str, Any]:
    def plain(views: Any) -> list[dict[str, Any]]:
        return [{key: each[key] for key in each if key != "age_s"} for each in views]

    return {
        "master": found.master,
        "roles": plain(found.roles.views),
        "frameworks": plain(found.frameworks.views),
        "agents_with_problems": plain(found.agents.views),
        "failures": plain(found.failures.views),
    }


MAX_FILTER = 60
_ENTER = "\r\n"
_ESCAPE = "\x1b"
_RUBOUT = "\x7f\b"


def pressed(display: Display, text: str) -> Display | None:
    """Return the display after the keys of `text`; None: quit. Other keys are ignored."""
    if text.startswith(_ESCAPE) and len(text) > 1:
        # A key such as an arrow.
        return display
    for key in text:
        if display.is_typing:
            display = _typed(display, key)
        elif key in "qQ\x03\x04":
            return None
        elif key in "sS":
            display = replace(display, order=display.order.next)
        elif key == "/":
            display = replace(display, is_typing=True)
        elif key == _ESCAPE:
            display = replace(display, filter="")
    return display


def _typed(display: Display, key: str) -> Display:
    if key in _ENTER:
        return replace(display, is_typing=False)
    if key == _ESCAPE:
        return replace(display, is_typing=False, filter="")
    if key in _RUBOUT:
        return replace(display, filter=display.filter[:-1])
    if key.isprintable() and len(display.filter) < MAX_FILTER:
        return replace(display, filter=display.filter + key)
    return display
