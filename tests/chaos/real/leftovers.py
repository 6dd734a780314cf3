"""What an agent still keeps in its work dir, once all that it ran is over and acknowledged."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.real.checker import Violation


def check_agents(name: str, work_dir: Path) -> list[Violation]:
    """Files of runs that nobody needs any more."""
    runs = work_dir / "runs"
    kept = sorted(path.name for path in runs.iterdir()) if runs.is_dir() else []
    return [Violation("kept", name, f"runs/{run}") for run in kept]
