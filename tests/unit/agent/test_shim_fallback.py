"""The interpreted shim finds all children, even if processes end during its scan."""

from __future__ import annotations

import os
import signal

import pytest

from croupier.agent.shim import fallback, restrictions


def test_children_of_a_process_that_ends_during_the_scan_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task, dying, orphan = 10, 11, 12
    children = {task, dying}
    killed: list[int] = []

    def look() -> list[int]:
        return sorted(children)

    def reap(pid: int, flags: int) -> tuple[int, int]:
        if pid == dying or pid in killed:
            children.discard(pid)
            if pid == dying:
                children.add(orphan)
            return pid, 0
        return 0, 0

    monkeypatch.setattr(fallback, "find_children", look)
    monkeypatch.setattr(os, "waitpid", reap)
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    monkeypatch.setattr(os, "killpg", lambda pid, number: None)
    monkeypatch.setattr(signal, "sigtimedwait", lambda signals, timeout: None)
    fallback.sweep(task, restrictions.Options([]))
    assert killed == [orphan]
    assert children == {task}
