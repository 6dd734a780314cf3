"""Flags that several commands share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest
from croupier.model.task import MAX_GRACE_MS
from croupier.net.address import DEFAULT_MASTER, MASTER_PORT, Address, parse_addresses
from croupier.process.cli import read_by


@dataclass(frozen=True, slots=True)
class Target:
    """The addresses of the masters of one cluster; one of them leads."""

    addresses: tuple[Address, ...]

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `HOST:PORT[,...]`.

        Raises:
            InvalidRequest: if it has another form.
        """
        return cls(parse_addresses(text, MASTER_PORT))

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


def parse_grace_ms(text: str) -> int:
    """Read a grace period, in milliseconds.

    Raises:
        InvalidRequest: if it is not a duration, or too long.
    """
    grace_ms = parse_duration(text) * 1000
    if math.isnan(grace_ms) or not 0 <= grace_ms <= MAX_GRACE_MS:
        raise InvalidRequest("must be between 0 seconds and 24 hours")
    return round(grace_ms)


def _switch(name: str, text: str) -> Parameter:
    return Parameter(name=name, negative="", help=text)


LOCAL: Final = Target((DEFAULT_MASTER,))

MasterFlag = Annotated[
    Target,
    read_by(
        Target.parse,
        name="--master",
        env_var="CROUPIER_MASTER",
        help="HOST:PORT of the master; several masters are joined by commas.",
    ),
]
JsonListFlag = Annotated[bool, _switch("--json", "Print a JSON list.")]
JsonFlag = Annotated[bool, _switch("--json", "Print JSON.")]
DryRunFlag = Annotated[bool, _switch("--dry-run", "Change nothing; print what would change.")]
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
RoleName = Annotated[str, Parameter(help="The role, such as ads or ads/prod.")]
TimeoutFlag = Annotated[float | None, read_by(parse_duration, name="--timeout")]
ResourcesWaitFlag = Annotated[float | None, read_by(parse_duration, name="--wait-for-resources")]
GraceFlag = Annotated[int | None, read_by(parse_grace_ms, name="--grace")]
