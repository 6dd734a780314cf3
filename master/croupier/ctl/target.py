"""Which master a command talks to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

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
            InvalidRequest: if it is not that.
        """
        return cls(parse_addresses(text, MASTER_PORT))

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


LOCAL: Final = Target((DEFAULT_MASTER,))

MasterFlag = Annotated[
    Target,
    read_by(
        Target.parse,
        name="--master",
        env_var="CROUPIER_MASTER",
        help="HOST:PORT of the master; of several masters, joined by commas.",
    ),
]
