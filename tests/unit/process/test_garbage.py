"""Full collections stay short: what survives a long one is not looked at again."""

from __future__ import annotations

import gc
import weakref

import pytest

from croupier.master.core.effects import SessionId
from croupier.master.session import AgentSession, FrameworkSession
from croupier.process.garbage import LONG_S, LongCollections


@pytest.mark.parametrize(
    ("generation", "seconds", "is_frozen"),
    [(2, 2 * LONG_S, True), (2, LONG_S / 2, False), (1, 9, False)],
)
def test_survivors_of_a_long_full_collection_are_frozen(
    generation: int, seconds: float, is_frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = []
    times = iter((5.0, 5.0 + seconds))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    note = LongCollections(lambda: next(times))
    note("start", {"generation": generation})
    note("stop", {"generation": generation, "collected": 0, "uncollectable": 0})
    assert bool(frozen) is is_frozen


@pytest.mark.parametrize("kind", [AgentSession, FrameworkSession])
def test_a_session_is_freed_without_a_collection(
    kind: type[AgentSession | FrameworkSession],
) -> None:
    """A frozen cycle would stay until the end of the term."""
    gc.disable()
    try:
        session = kind(SessionId(1))
        session.beat()
        freed = weakref.ref(session)
        del session
        assert freed() is None
    finally:
        gc.enable()
