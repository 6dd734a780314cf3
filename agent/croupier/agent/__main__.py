"""The `croupier-agent` command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from croupier.agent.config import AgentConfig
from croupier.process.cli import config_reader, make_app, run_app
from croupier.process.logging import configure_logging, get_logger

if TYPE_CHECKING:  # slow
    import asyncio

_log = get_logger("croupier.agent")

_OOM_SCORE_FILE = Path("/proc/self/oom_score_adj")
# -1000 would spare the agent and its shims however much memory they use.
OWN_OOM_SCORE = -900
_PR_SET_DUMPABLE = 4

NAME = "croupier-agent"
ABOUT = """Run tasks on this machine for the cluster of --master.

Each task has a sandbox under --work-dir. Tasks keep running when the agent stops or crashes, and
the next agent on the same --work-dir adopts them; --on-stop end ends them when it stops.
Prometheus scrapes --http.
A value is taken from its flag, else from its variable, such as CROUPIER_WORK_DIR, else from
[croupier-agent] in the TOML file that CROUPIER_CONFIG names.
"""


def main() -> None:
    """Run the command and exit with its code."""
    sys.exit(run_app(command_line()))


def command_line() -> App:
    """Return the command and its flags."""
    app = make_app(NAME, ABOUT)

    @app.default
    def serve(*, config: AgentConfig = AgentConfig()) -> int:  # noqa: B008 - frozen
        """Run an agent until SIGTERM or SIGINT. SIGHUP reads the TOML file again."""
        from croupier.process.daemon import run_daemon

        configure_logging(config.log_format, config.log_level)
        read = config_reader(command_line, AgentConfig)
        return run_daemon(NAME, lambda stop: run_agent(config, stop, read))

    return app


async def run_agent(
    config: AgentConfig, stop: asyncio.Event, read: Callable[[], AgentConfig]
) -> None:
    """Run an agent until `stop` is set, or clean up after one; `read` is for reloads.

    Raises CroupierError if it cannot start or write its records, or if another agent takes over its
    id.
    """
    # Imported here, so that --help and errors of the command line come fast.
    from croupier.agent.app import AgentDaemon
    from croupier.agent.recover import check_used, clean_up

    if config.recover == "cleanup":
        check_used(config.work_dir)
        await clean_up(config.work_dir)
        return
    lower_own_score()
    hide_own_memory()
    agent = AgentDaemon(config)
    reloader = agent.reloader(read)
    try:
        await agent.start()
        reloader.start()
        await agent.run(stop)
    finally:
        await reloader.stop()
        await agent.stop()


def lower_own_score() -> None:
    """Make the kernel kill this process after all others, if it allows that.

    The shim raises the score of each task (shim.c), which needs no privilege. To lower its own
    score the agent needs CAP_SYS_RESOURCE, which root has. Its shims inherit the score.
    """
    try:
        if int(_OOM_SCORE_FILE.read_text()) > OWN_OOM_SCORE:
            _OOM_SCORE_FILE.write_text(str(OWN_OOM_SCORE))
    except (OSError, ValueError) as error:
        _log.info("oom_score_not_lowered", error=str(error))


def hide_own_memory() -> None:
    """Make this process not dumpable. The programs that it executes are dumpable again.

    Such a process belongs to root under /proc, so tasks of the same user can neither trace it nor
    read its memory, its environment, with credentials, and its descriptors. It also leaves no core
    dump.
    """
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


if __name__ == "__main__":
    main()
