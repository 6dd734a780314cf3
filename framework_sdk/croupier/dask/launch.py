"""The tasks of workers: their command, their environment and their certificates."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from distributed.security import Security

import dask
from croupier.futures.shape import Shape
from croupier.sdk import Constraint, InvalidRequest, Resources, Task, enforces

_PREFIX: Final = "DASK_DISTRIBUTED__COMM__"
_TLS: Final = {
    "TLS__CA_FILE": "tls_ca_file",
    "TLS__WORKER__CERT": "tls_worker_cert",
    "TLS__WORKER__KEY": "tls_worker_key",
    "TLS__CIPHERS": "tls_ciphers",
}
_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class DaskLaunch:
    """What all workers of a cluster have in common.

    Attributes:
        threads: of each worker.
        env: variables to add to the agent's environment.
        user: account to run as; empty for the one that the agent gives.
        death_timeout_s: time after which a worker that finds no scheduler ends.
        host: interface that workers listen on; empty for all.
        arguments: further ones of `dask worker`.
    """

    shape: Shape
    threads: int
    name: str
    death_timeout_s: float = 60.0
    grace_s: float = 5.0
    host: str = ""
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    @property
    def conditions(self) -> tuple[Constraint, ...]:
        """Conditions on agents."""
        needs = self.task("check", "tcp://check", Security()).needs
        return (*self.shape.constraints, *((enforces(*needs),) if needs else ()))

    def task(self, worker: str, scheduler: str, security: Security) -> Task:
        """Return the task of a worker, named `worker`, of the scheduler at an address.

        Raises:
            InvalidRequest: if no agent can ever run it.
        """
        plain, secret = security_variables(security)
        return Task(
            [self.shape.python, "-u", "-c", boot_source(), *self._words(worker, scheduler)],
            resources=self.shape.resources,
            task_id=worker,
            name=worker,
            env={**default_environment(), **self.env, **plain},
            secrets=secret,
            user=self.user,
            grace_s=self.grace_s,
            limits=self.shape.limits,
            image=self.shape.image,
        )

    def _words(self, worker: str, scheduler: str) -> list[str]:
        words = [
            scheduler, "--name", worker, "--no-nanny", "--nthreads", str(self.threads),
            "--memory-limit", str(memory_bytes(self.shape.resources)),
            "--death-timeout", f"{self.death_timeout_s:g}", "--local-directory", ".",
            "--no-dashboard", "--dashboard-address", "127.0.0.1:0",
        ]  # fmt: skip
        if self.host:
            words += ["--host", self.host]
        return [*words, *self.arguments]


@cache
def boot_source() -> str:
    """Return the program of a worker as text."""
    return files(__package__).joinpath("boot.py").read_text()


def default_environment() -> dict[str, str]:
    """Return what Dask's own nannies set: one thread for each library that has threads."""
    found = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    python = ".".join(platform.python_version_tuple()[:2])
    return {**{name: str(value) for name, value in found.items()}, "CROUPIER_DASK_PYTHON": python}


def memory_bytes(resources: Resources) -> int:
    """Return the memory of a worker; 0, which Dask takes for no limit, if it has none."""
    return resources["mem"] * _KIB * _KIB // 1000


def security_variables(security: Security) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables by which a worker finds its certificates: plain and secret ones.

    What is in memory is secret. Paths of files are plain: agents must have these files.
    """
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, attribute in _TLS.items():
        value: Any = getattr(security, attribute)
        if value:
            target = secret if "\n" in value else plain
            target[_PREFIX + name] = str(value)
    if security.require_encryption:
        plain[_PREFIX + "REQUIRE_ENCRYPTION"] = "True"
    return plain, secret


def security_of(security: Security | bool | None) -> Security:
    """Return the security of a cluster: with None or True a new certificate, kept in memory.

    Raises:
        InvalidRequest: if it is something else.
    """
    if security is None or security is True:
        temporary: Security = Security.temporary()
        return temporary
    if security is False:
        return Security(require_encryption=False)
    if isinstance(security, Security):
        return security
    raise InvalidRequest(f"security is a distributed.Security, True or False, not {security!r}")
