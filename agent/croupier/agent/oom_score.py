"""The OOM score of the agent: when memory is short, the kernel kills tasks, not the agent.

The shim raises the score of each task (shim.c), which needs no privilege. To lower its own score
the agent needs CAP_SYS_RESOURCE, which root has. Its shims inherit the score.
"""

from __future__ import annotations

from pathlib import Path

from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

_FILE = Path("/proc/self/oom_score_adj")
# -1000 would spare the agent and its shims however much memory they use.
OWN = -900


def lower_own_score() -> bool:
    """Make the kernel kill this process after all others; return whether it allows that."""
    try:
        if int(_FILE.read_text()) > OWN:
            _FILE.write_text(str(OWN))
    except (OSError, ValueError) as error:
        _log.info("oom_score_not_lowered", error=str(error))
        return False
    return True
