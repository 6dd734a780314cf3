"""The `croupier-master` command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from croupier.master.backup.flags import AcceptedCopy, StoreFlags
from croupier.master.config import MasterConfig
from croupier.process.cli import add_command, config_reader, make_app, run_app
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
    sys.exit(run_app(command_line()))


def command_line() -> App:
    """Return the command, its flags and the commands below it."""
    app = make_app(NAME, ABOUT)

    @app.default
    def serve(*, config: MasterConfig = MasterConfig()) -> int:  # noqa: B008 - frozen
        """Run a master until SIGTERM or SIGINT. SIGHUP reads the TOML file again."""
        # Imported here, so that --help and errors in the command line are fast.
        from croupier.master.app import run_master
        from croupier.process.daemon import run_daemon

        configure_logging(config.log_format, config.log_level)
        read = config_reader(command_line, MasterConfig)
        return run_daemon(NAME, lambda stop: run_master(config, stop, read))

    def backup(
        *,
        output: Path,
        store: StoreFlags = StoreFlags(),  # noqa: B008 - frozen
    ) -> None:
        """Copy the store to a file, also while a master uses it.

        The file is a consistent and checksummed copy of the store at one commit. It has mode 0600,
        because it contains the commands of tasks. `croupier-master restore` reads it.

        Args:
            output: Backup file to write; it must not exist.
            store: see above.
        """
        from croupier.master.backup.commands import back_up

        configure_logging("text", "error")
        print(back_up(store, output))

    def restore(
        *,
        source: Annotated[Path, Parameter(name="--from")],
        store: StoreFlags = StoreFlags(),  # noqa: B008 - frozen
        recover: AcceptedCopy = "strict",
        replace: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Restore the store of the masters from a backup. No master may be running.

        The backup is refused if it is damaged, belongs to another cluster, or is older than what
        is known of the store that it replaces.

        Args:
            source: File that `croupier-master backup` made.
            store: see above.
            recover: strict: refuse a backup that is known to be old. old-store: accept it, and
                give up what was committed after it.
            replace: Replace the store that is there. A database is kept as PATH.replaced.
            dry_run: Check everything and write nothing.
        """
        from croupier.master.backup.commands import restore as put_back

        configure_logging("text", "error")
        accepts_old = recover == "old-store"
        for line in put_back(
            store, source, accepts_old=accepts_old, replaces=replace, dry_run=dry_run
        ):
            print(line)

    for command in (backup, restore):
        add_command(app, command)
    return app


if __name__ == "__main__":
    main()
