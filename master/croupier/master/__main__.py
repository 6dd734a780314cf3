"""The `croupier-master` command."""

from __future__ import annotations

import sys

from croupier.master.config import MasterConfig
from croupier.process.cli import make_app, run_app
from croupier.process.logging import configure_logging

NAME = "croupier-master"
ABOUT = """Offer the free resources of all agents to frameworks, lowest dominant share first.

Frameworks, agents and operators connect to --listen (gRPC); Prometheus scrapes --http.
Each option can also be set by a variable, such as CROUPIER_LISTEN, or in section
[croupier-master] of the TOML file that CROUPIER_CONFIG names. A flag overrides a variable, and
a variable overrides the file.
"""


def main() -> None:
    """Run the command and exit with its code."""
    app = make_app(NAME, ABOUT)

    @app.default
    def serve(*, config: MasterConfig = MasterConfig()) -> int:  # noqa: B008 - frozen
        """Run a master until SIGTERM or SIGINT."""
        # Imported here, so that --help and errors in the command line are fast.
        from croupier.master.app import run_master
        from croupier.process.daemon import run_daemon

        configure_logging(config.log_format, config.log_level)
        return run_daemon(NAME, lambda stop: run_master(config, stop))

    sys.exit(run_app(app))


if __name__ == "__main__":
    main()
