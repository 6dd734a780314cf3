"""The variables CROUPIER_* that programs read. A misspelled one is refused, as a key in TOML is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.process.flag_variables import FLAG_VARIABLES

PREFIX: Final = "CROUPIER_"
# Variables that are read, and that belong to no flag of a daemon.
_OTHERS: Final = frozenset(
    {"CROUPIER_CONFIG", "CROUPIER_TOKEN", "CROUPIER_TOKEN_FILE", "CROUPIER_PARENT"}
)
# Kubernetes sets these for each service, such as CROUPIER_PORT_5050_TCP_ADDR for `croupier`.
_SERVICE_LINK: Final = re.compile(
    r"CROUPIER(_.+)?_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def check_variables(environment: Mapping[str, str]) -> None:
    """Refuse unknown variables; in a task none, since agents and users set more of them there.

    Variables of other programs are no error: programs of one machine may share an environment.

    Raises:
        InvalidRequest: if there is one, with the nearest known name.
    """
    if "CROUPIER_TASK_ID" in environment:
        return
    known = FLAG_VARIABLES | _OTHERS
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and not _SERVICE_LINK.fullmatch(name):
            near = get_close_matches(name, sorted(known), n=1, cutoff=0.8)
            advice = f": did you mean {near[0]}?" if near else "; unset it"
            raise InvalidRequest(f"unknown variable {name}{advice}")
