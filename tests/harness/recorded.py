"""Event logs of cores in virtual time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.master.allocator import Allocator, Rules, policies
from croupier.master.core.effects import Effect
from croupier.master.core.registry import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.state_recovery import recover_state
from croupier.master.core.step import Event, step
from croupier.master.eventlog import codec
from croupier.master.eventlog.lines import FORMAT, Head
from croupier.master.eventlog.recorder import FileRecorder
from croupier.master.eventlog.writer import Writer
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from croupier.sim.kernel import VirtualClock
from tests.harness.world import World

LARGE = 1 << 30
# The time of the wall clock: 2026-01-01.
EPOCH_MS = 1_767_225_600_000


def sealed(line: bytes) -> bytes:
    """Return a changed line with the correct checksum."""
    body = re.sub(rb',"crc":"[0-9a-f]{8}"', b"", line.rstrip())
    return codec._sealed(body, b"}}" if body.startswith(b'{"head"') else b"}")


def make_head(
    settings: Settings | None = None,
    policy: str = "drf",
    rules: Rules | None = None,
    roles: Mapping[Role, RoleSettings] | None = None,
    registry: Registry | None = None,
) -> Head:
    """Return the head of the log of a simulated master that begins at 0."""
    return Head(
        FORMAT,
        "test",
        "sim",
        part=1,
        at=0.0,
        wall_ms=EPOCH_MS,
        events=0,
        digest="",
        settings=settings or Settings(),
        policy=policy,
        seed=0,
        rules=rules or Rules(remembers_misfits=True),
        roles=dict(roles or {}),
        registry=registry or Registry(),
    )


def state_of(head: Head) -> State:
    """Return the state of a master that begins with `head`."""
    allocator = Allocator(policies.make(head.policy, head.seed), head.rules, head.roles)
    assert head.registry is not None
    return recover_state(head.registry, head.master_id, head.settings, allocator, head.at)


def make_recorder(path: Path, head: Head, size: int = LARGE, most: int = 8) -> FileRecorder:
    """Return a recorder that begins with `head`."""
    return FileRecorder(Writer(path, most), size, head, VirtualClock(EPOCH_MS))


class RecordedWorld(World):
    """A world that logs every step until `close`.

    Attributes:
        logs: one of each master; the last is being written.
    """

    def __init__(self, path: Path, head: Head | None = None, size: int = LARGE) -> None:
        self._head, self._size = head or make_head(), size
        super().__init__(state=state_of(self._head))
        self.logs = [path]
        self.recorder = make_recorder(path, self._head, size, most=100)

    def _step(self, event: Event) -> list[Effect]:
        effects = super()._step(event)
        self.recorder.decided(event, self.now, effects)
        self.recorder.flush(self.state)
        return effects

    def _recovered(self, master_id: str, registry: Registry) -> State:
        self.close()
        head = replace(self._head, master_id=master_id, registry=registry, at=self.now)
        self.logs.append(self.logs[0].with_name(f"log{len(self.logs)}"))
        self.recorder = make_recorder(self.logs[-1], head, self._size, most=100)
        return state_of(head)

    def close(self) -> None:
        """Complete the log."""
        self.recorder.close()
        assert self.recorder.dropped == 0


@contextmanager
def simulation_recorded(
    path: Path, head: Head, size: int = LARGE, spy: Callable[[State, float], None] | None = None
) -> Iterator[None]:
    """Log the simulated cluster that runs within the block; `spy` sees every step."""
    recorder = make_recorder(path, head, size, most=100)

    def recorded(state: State, event: Event, now: float) -> list[Effect]:
        effects = step(state, event, now)
        recorder.decided(event, now, effects)
        recorder.flush(state)
        if spy is not None:
            spy(state, now)
        return effects

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("croupier.sim.kernel.step", recorded)
        try:
            yield
        finally:
            recorder.close()
    assert recorder.dropped == 0
