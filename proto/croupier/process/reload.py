"""The configuration of a running daemon, read again at SIGHUP.

Rule: a configuration that cannot be read, or is not valid, changes nothing. Of a valid one the
daemon takes the settings that it can; the log names them, and the others, which need a restart.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, Generic, TypeVar

from croupier.process.logging import get_logger

ConfigT = TypeVar("ConfigT")

_log: Final = get_logger("croupier.reload")


class Reloader(Generic[ConfigT]):
    """Takes what it can of a changed configuration."""

    def __init__(
        self,
        config: ConfigT,
        read: Callable[[], ConfigT],
        takes: Mapping[str, Callable[[ConfigT], object]],
    ) -> None:
        """Prepare; `start` listens for signals.

        Args:
            config: of the daemon.
            read: returns the present configuration, in a thread, or raises.
            takes: by the names of fields that can change.
        """
        self._running, self._read, self._takes = settings(config), read, takes
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Reload at each SIGHUP from now on."""
        self._task = asyncio.create_task(self._run(), name="reload")
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._asked.set)

    async def stop(self) -> None:
        """Ignore SIGHUP from now on."""
        if self._task is not None:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
            ignore_hangups()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def reload(self) -> None:
        """Read the configuration, and take what can be taken."""
        try:
            config = await asyncio.to_thread(self._read)
        except Exception as error:
            _log.error("config_not_reloaded", error=str(error))
            return
        now = settings(config)
        changed = [name for name, value in now.items() if value != self._running[name]]
        taken = [name for name in changed if name in self._takes]
        left = [flag(name) for name in changed if name not in taken]
        # Before a new log level hides it.
        _log.info("config_reloaded", taken=[flag(name) for name in taken])
        if left:
            _log.warning("restart_needed", settings=left)
        for take in {self._takes[name] for name in taken}:
            take(config)
        self._running |= {name: now[name] for name in taken}

    async def _run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.reload()


def settings(config: Any) -> dict[str, Any]:
    """Return the settings of a configuration by field name, those of its groups of flags too."""
    found: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        # Groups of flags have no name of their own.
        is_group = is_dataclass(value) and type(value).__name__.endswith("Flags")
        found |= settings(value) if is_group else {field.name: value}
    return found


def flag(name: str) -> str:
    """Return the flag of a field."""
    return "--" + name.replace("_", "-")


def ignore_hangups() -> None:
    """Ignore SIGHUP; programs that this process starts do not."""
    signal.signal(signal.SIGHUP, lambda *_: None)
