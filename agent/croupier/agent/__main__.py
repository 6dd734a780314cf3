"""The `croupier-agent` command."""

from __future__ import annotations

import sys

from cyclopts import App

from croupier.agent.config import AgentConfig
from croupier.process.cli import config_reader, make_app, run_app
from croupier.process.logging import configure_logging

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
        # Imported here, so that --help and errors of the command line come fast.
        from croupier.agent.daemon import run_agent
        from croupier.process.daemon import run_daemon

        configure_logging(config.log_format, config.log_level)
        read = config_reader(command_line, AgentConfig)
        return run_daemon(NAME, lambda stop: run_agent(config, stop, read))

    return app


if __name__ == "__main__":
    main()
