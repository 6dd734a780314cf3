"""`croupier top`: asking the master, drawing, keys, and reconnecting.

Rules: it takes at most a tenth of the master's time that it measures: slow answers are asked for
less often. The terminal is as before at the end, also after an error.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from cyclopts import Parameter

from croupier.cli.connection import connected, run
from croupier.cli.flags import LOCAL, MasterFlag, Target
from croupier.cli.table import takes_colour
from croupier.ctl.app import app
from croupier.ctl.top.frame import ORDERS, Display, Order, Terminal, frame
from croupier.ctl.top.snapshot import Snapshot, take_snapshot
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.net.task_scope import racing

REFRESH_S: Final = 1.0
# The pause is at least this many times the time of the answers.
PAUSE_FACTOR: Final = 9.0
MAX_FILTER: Final = 60
_ENTER: Final = "\r\n"
_ESCAPE: Final = "\x1b"
_RUBOUT: Final = "\x7f\b"
_OPEN: Final = "\x1b[?1049h\x1b[?25l"
_CLOSE: Final = "\x1b[?25h\x1b[?1049l"


@app.command
def top(
    *,
    once: Annotated[bool, Parameter(negative="")] = False,
    sort: Order = "share",
    text: str = "",
    master: MasterFlag = LOCAL,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show the cluster live: resources, failed tasks, agents with problems, roles, frameworks.

    Keys: q quits, s changes the order of frameworks, / filters. After a failover it continues with
    the next master. It asks the master every second, or less often if answers are slow, and never
    lists all tasks.

    Args:
        once: Print one frame and exit.
        sort: Order of the frameworks.
        text: Show only roles, frameworks and agents with this text.
        as_json: Print one frame as JSON.
    """
    display = Display(sort, text)
    if once or as_json:
        found = run(master, take_snapshot)
        if as_json:
            print(json.dumps(_json(found), indent=2))
            return
        for line in frame(found, display, terminal_now(is_live=False)):
            print(line.rstrip())
    elif not sys.stdout.isatty():
        raise InvalidRequest("stdout is not a terminal; croupier top --once prints one frame")
    else:
        asyncio.run(Top(master, display).run())


class Top:
    """The cluster on a screen, whichever master leads."""

    def __init__(self, target: Target, display: Display) -> None:
        self.display = display
        self.found: Snapshot | None = None
        self._target = target
        self._screen: Screen | None = None
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Show frames until the user quits; raises as `poll`."""
        try:
            async with racing(self.poll(), self._is_over.wait()) as (asking, _):
                if asking.done():
                    asking.result()
        finally:
            if self._screen is not None:
                self._screen.close()

    async def poll(self) -> None:
        """Ask whichever master leads, repeatedly; raises CroupierError at first, or if refused."""
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
            orders = list(ORDERS)
            after = (orders.index(display.order) + 1) % len(orders)
            display = replace(display, order=orders[after])
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


class Screen:
    """The terminal while a program draws on it. For the main thread and its loop."""

    def __init__(self, on_keys: Callable[[str], None], on_resize: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_keys = on_keys
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._before: list[Any] | None = None
        self._loop.add_signal_handler(signal.SIGWINCH, on_resize)
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
            self._loop.add_reader(sys.stdin, self._read)
        _write(_OPEN)

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the text on the screen."""
        body = "\r\n".join(f"{line}\x1b[K" for line in lines)
        _write(f"\x1b[H{body}\x1b[J")

    def close(self) -> None:
        """Restore the terminal."""
        self._loop.remove_signal_handler(signal.SIGWINCH)
        if self._before is not None:
            self._loop.remove_reader(sys.stdin)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
        _write(_CLOSE)

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), 1024)
        if not data:
            # The terminal is gone.
            self._loop.remove_reader(sys.stdin)
            self._on_keys("q")
            return
        self._on_keys(self._decoder.decode(data))


def terminal_now(*, is_live: bool) -> Terminal:
    """Return the size and abilities of the terminal, as of now."""
    size = shutil.get_terminal_size()
    is_terminal = sys.stdout.isatty()
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return Terminal(
        size.columns,
        size.lines if is_live else None,
        has_colours=is_terminal and takes_colour(),
        is_ascii=not encoding.startswith("utf"),
    )


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
