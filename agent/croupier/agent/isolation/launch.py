"""The start of one task, which isolators change before the shim carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from croupier.agent.core.tasks import Key
from croupier.agent.unix_user import UnixUser
from croupier.model.task import TaskInfo


@dataclass(frozen=True, slots=True)
class Launch:
    """The start of one task.

    Attributes:
        run: the name of the run, unique over all lives of the agent.
        sandbox: the path of its directory.
        argv: the program and its arguments; isolators may put a tool before them.
        environment: the task's variables.
        user: the user that it runs as; None: the agent's own.
        options: for the shim; see `shim.c`.
        program: the task's own program, for error messages.
        joins: whether a command enters the namespaces of its task; only `join` sets it.
    """

    run: str
    key: Key
    info: TaskInfo
    sandbox: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    user: UnixUser | None = None
    options: tuple[str, ...] = ()
    program: str = ""
    joins: bool = False

    @property
    def search_path(self) -> str:
        """Where the program is looked for: the task's PATH, or the shim's default."""
        return self.environment.get("PATH", "/bin:/usr/bin")

    def with_options(self, options: tuple[str, ...]) -> Launch:
        """Return the launch with other options."""
        return Launch(
            self.run,
            self.key,
            self.info,
            self.sandbox,
            self.argv,
            self.environment,
            self.user,
            options,
            self.program,
            self.joins,
        )
