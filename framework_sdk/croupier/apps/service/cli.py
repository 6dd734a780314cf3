"""`croupier service`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from croupier.cli.flags import LOCAL, JsonFlag, MasterFlag, TimeoutFlag
from croupier.process.cli import make_app

if TYPE_CHECKING:
    from croupier.apps.service.service_client import ApplyOptions

service = make_app(
    "service",
    "Run N instances of a long-running task: health checks, rolling updates, rollback.\n\n"
    "Example: croupier service apply web.toml",
    reads_environment=False,
)

StateFlag = Annotated[
    Path | None,
    Parameter(
        name="--state",
        help="Directory of the services' states; $XDG_STATE_HOME/croupier/services if not given.",
    ),
]
NameOrFile = Annotated[str, Parameter(help="Name of the service, or its file.")]
NoWaitFlag = Annotated[
    bool, Parameter(name="--no-wait", negative="", help="Return at once; do not follow.")
]


@service.command
def apply(
    file: Path,
    /,
    *,
    detach: Annotated[bool, Parameter(negative="")] = False,
    takeover: Annotated[bool, Parameter(negative="")] = False,
    no_wait: NoWaitFlag = False,
    timeout: TimeoutFlag = None,
    state: StateFlag = None,
    master: MasterFlag = LOCAL,
) -> int:
    """Start a service, or update the one that runs: croupier service apply web.toml.

    The first apply becomes the service's controller and stays in the foreground, as for systemd.
    If a controller runs already, the file is given to it, and the command follows the update.
    SIGTERM and Ctrl-C end the controller only; its instances keep running for 7 days, and the next
    apply continues.

    Exit codes: 0 updated, or the controller was asked to end; 1 the update failed or was rolled
    back, or the service is run by another controller; 2 the file has a mistake; 124 --timeout.

    Args:
        file: The service file, in TOML or YAML; docs/service.md describes it.
        detach: Run the controller in the background; its log is in the state directory.
        takeover: End another controller of this service, here or elsewhere, and continue in its
            place. Its instances keep running.
        timeout: Follow an update no longer than this, such as 5m.
    """
    from croupier.apps.service.service_client import ApplyOptions, apply_file

    return apply_file(file, master, ApplyOptions(state, takeover, detach, not no_wait, timeout))


@service.command
def status(name: NameOrFile = "", /, *, state: StateFlag = None, as_json: JsonFlag = False) -> int:
    """Show a service with its instances, or list all services of this user.

    Example: croupier service status web
    """
    from croupier.apps.service.service_client import show_status

    return show_status(name, state, as_json=as_json)


@service.command
def scale(
    name: NameOrFile,
    instances: int,
    /,
    *,
    no_wait: NoWaitFlag = False,
    timeout: TimeoutFlag = None,
    state: StateFlag = None,
) -> int:
    """Set the number of instances until a file is applied: croupier service scale web 5.

    Exit codes: 0 all are available; 1 no controller runs; 124 --timeout.

    Args:
        instances: Number of instances; 0 is allowed.
        timeout: Wait no longer than this, such as 5m.
    """
    from croupier.apps.service.service_client import scale

    return scale(name, instances, _options(state, no_wait, timeout))


@service.command
def rollout(
    name: NameOrFile,
    action: Literal["restart", "undo", "pause", "resume", ""] = "",
    /,
    *,
    no_wait: NoWaitFlag = False,
    timeout: TimeoutFlag = None,
    state: StateFlag = None,
) -> int:
    """Follow the update, or control it: croupier service rollout web undo.

    Exit codes: 0 done; 1 failed or rolled back, or no controller runs; 124 --timeout.

    Args:
        action: restart replaces all instances by new ones of the same version, a few at a time;
            undo returns to the version before; pause and resume halt and continue the update.
        timeout: Follow no longer than this, such as 5m.
    """
    from croupier.apps.service.service_client import rollout

    return rollout(name, action, _options(state, no_wait, timeout))


@service.command
def stop(
    name: NameOrFile,
    /,
    *,
    no_wait: NoWaitFlag = False,
    timeout: TimeoutFlag = None,
    state: StateFlag = None,
    master: MasterFlag = LOCAL,
) -> int:
    """End all instances, with SIGTERM and the grace of their task, and then the controller.

    Without a controller, this command ends the instances itself. Example: croupier service stop web

    Exit codes: 0 stopped; 1 the master or the controller cannot be reached; 124 --timeout.

    Args:
        timeout: Wait no longer than this, such as 5m.
    """
    from croupier.apps.service.service_client import stop

    return stop(name, master, _options(state, no_wait, timeout))


def _options(state: Path | None, no_wait: bool, timeout: float | None) -> ApplyOptions:
    from croupier.apps.service.service_client import ApplyOptions

    return ApplyOptions(state, waits=not no_wait, timeout_s=timeout)
