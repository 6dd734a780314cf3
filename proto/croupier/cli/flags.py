"""Flags that several commands share."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter

from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest
from croupier.model.task_checks import MAX_GRACE_MS
from croupier.net.address import DEFAULT_MASTER, MASTER_PORT, Address, parse_addresses
from croupier.process.cli import read_by

if TYPE_CHECKING:
    from croupier.net.credential_search import FoundCredentials
    from croupier.net.credentials import ClientSecurity

# The exit code if the time of --timeout has passed, as of timeout(1).
TIMED_OUT: Final = 124

CONNECTION: Final = Group("Connection", sort_key=1000)


def parse_masters(text: str) -> tuple[Address, ...]:
    """Read `HOST:PORT[,...]`; raises InvalidRequest if it has another form."""
    return parse_addresses(text, MASTER_PORT)


def _file(name: str, text: str) -> Parameter:
    return Parameter(name=name, help=text, group=CONNECTION, show_env_var=False)


@dataclass(frozen=True, slots=True)
class Target:
    """The masters of one cluster, and the credentials for it.

    Credentials that are not given are found in the environment or a file.
    """

    addresses: Annotated[
        tuple[Address, ...],
        read_by(
            parse_masters,
            name="--master",
            env_var="CROUPIER_MASTER",
            show_default=str(DEFAULT_MASTER).format,
            group=CONNECTION,
            help="HOST:PORT of the master; several masters are joined by commas.",
        ),
    ] = (DEFAULT_MASTER,)
    tls_ca: Annotated[
        Path | None, _file("--tls-ca", "CA certificates (PEM) to trust. Enables TLS.")
    ] = None
    tls_cert: Annotated[Path | None, _file("--tls-cert", "Client certificate (PEM).")] = None
    tls_key: Annotated[Path | None, _file("--tls-key", "Private key (PEM) of --tls-cert.")] = None
    tls_name: Annotated[
        str | None,
        _file(
            "--tls-name",
            "DNS name in the certificates of all masters, if --tls-ca names no cluster.",
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        _file("--token-file", "File with a bearer token, in place of a client certificate."),
    ] = None

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse `HOST:PORT[,...]`; raises the errors of `parse_masters`."""
        return cls(parse_masters(text))

    def credentials(self) -> FoundCredentials:
        """Return the credentials of flags, environment or masters' file; raises InvalidRequest."""
        from croupier.net.credential_search import CredentialFlags, find_credentials

        given = CredentialFlags(
            self.tls_ca, self.tls_cert, self.tls_key, self.tls_name, self.token_file
        )
        return find_credentials(given, self.addresses)

    def security(self) -> ClientSecurity:
        """Return the present credentials; raises as `credentials`."""
        return self.credentials().security

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


# Flags of `Target`, which may also come before the command.
CONNECTION_FLAGS: Final = (
    "--master",
    *(f"--{each.name.replace('_', '-')}" for each in fields(Target)[1:]),
)


def parse_grace_ms(text: str) -> int:
    """Read a grace period, in milliseconds; raises InvalidRequest if it is none, or too long."""
    grace_ms = parse_duration(text) * 1000
    if math.isnan(grace_ms) or not 0 <= grace_ms <= MAX_GRACE_MS:
        raise InvalidRequest("must be between 0 seconds and 24 hours")
    return round(grace_ms)


def _switch(name: str, text: str) -> Parameter:
    return Parameter(name=name, negative="", help=text)


LOCAL: Final = Target()

MasterFlag = Annotated[Target, Parameter(name="*")]
JsonListFlag = Annotated[bool, _switch("--json", "Print a JSON list.")]
WideFlag = Annotated[
    bool, _switch("--wide", "Print all columns in full, also where the terminal is narrow.")
]
JsonFlag = Annotated[bool, _switch("--json", "Print JSON.")]
DryRunFlag = Annotated[bool, _switch("--dry-run", "Change nothing; print what would change.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Change:
    """The flags of commands that change something at the master."""

    dry_run: DryRunFlag = False
    master: MasterFlag = LOCAL
    as_json: JsonFlag = False


CHANGE: Final = Change()
YesFlag = Annotated[bool, _switch("--yes", "Do not ask for confirmation.")]
WaitFlag = Annotated[
    bool, _switch("--wait", "Follow the drain until it is done, with a line for each change.")
]
ForceFlag = Annotated[
    bool,
    _switch(
        "--force",
        "Accept a limit below what tasks use, a guarantee above the cluster's total, or a resource"
        " that no agent has.",
    ),
]
AgentName = Annotated[str, Parameter(help="Agent id, or hostname if only one agent has it.")]
FrameworkName = Annotated[
    str, Parameter(help="Framework id, or name if only one framework has it.")
]
TaskFrameworkFlag = Annotated[
    str,
    Parameter(
        help="Id or name of the task's framework; needed if several frameworks have a task of that"
        " id, unless only one of these still runs."
    ),
]
TaskAgentFlag = Annotated[
    str,
    Parameter(
        help="Id or hostname of the agent that ran the task; needed if the master has forgotten"
        " the task."
    ),
]
RoleName = Annotated[str, Parameter(help="The role, such as ads or ads/prod.")]
TimeoutFlag = Annotated[float | None, read_by(parse_duration, name="--timeout")]
MinRunFlag = Annotated[float, read_by(parse_duration, name="--min-run")]
CompletionFlag = Annotated[float | None, read_by(parse_duration, name="--max-completion")]
ResourcesWaitFlag = Annotated[float | None, read_by(parse_duration, name="--wait-for-resources")]
GraceFlag = Annotated[int | None, read_by(parse_grace_ms, name="--grace")]
