"""Assembly of an agent's isolators from its flags and from what the machine can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from croupier.agent.isolation.cgroup.isolator import build_cgroup
from croupier.agent.isolation.container import build_container
from croupier.agent.isolation.isolator import AUTO, LEVELS, NONE, Isolator, Layers, Setting
from croupier.agent.isolation.namespaces import build_namespaces
from croupier.agent.isolation.process import build_process
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")


# Returns the isolator of a level. Raises Unavailable, with the reason, if the machine lacks what it
# needs, and InvalidRequest if it lacks what a flag asks for. May block for a second.
Builder = Callable[[Setting], Isolator]

# By level. A level without an entry adds nothing to what the shim does for every task.
BUILDERS: Final[Mapping[str, Builder]] = {
    "process": build_process,
    "cgroup": build_cgroup,
    "namespaces": build_namespaces,
    "container": build_container,
}
# `auto` warns if the machine lacks one of these. The others need tools that few tasks ask for.
_EXPECTED: Final = ("process", "cgroup")


def assemble(setting: Setting, builders: Mapping[str, Builder] = BUILDERS) -> Layers:
    """Return the isolators of an agent. Blocks; not for the loop.

    Raises InvalidRequest if a level that the operator named is not available, or what a flag asks
    for, with the reason.
    """
    wanted = setting.flags.isolation
    if wanted == (NONE,):
        return Layers()
    is_auto = wanted == (AUTO,)
    built: list[Isolator] = []
    missing: dict[str, str] = {}
    for level in LEVELS:
        if level not in builders or not (is_auto or level in wanted):
            continue
        try:
            built.append(builders[level](setting))
        except (CroupierError, OSError) as error:
            if not is_auto or isinstance(error, InvalidRequest):
                raise InvalidRequest(f"--isolation {level}: {error}") from error
            missing[level] = str(error)
    reduced = {level: missing.pop(level) for level in _EXPECTED if level in missing}
    if reduced:
        _log.warning("isolation_reduced", missing=reduced)
    if missing:
        _log.info("isolation_not_offered", missing=missing)
    return Layers(built)
