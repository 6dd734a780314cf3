"""The `croupier service` commands, apart from the controller itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter

from croupier.apps.controller.process import run_application
from croupier.apps.controller.store import state_directory
from croupier.apps.job_file.section import SUFFIXES, read_job_file
from croupier.apps.service import control
from croupier.apps.service.file import check_name, read_service
from croupier.apps.service.runner import ControllerRun
from croupier.apps.service.state_dir import StateDir
from croupier.apps.service.status import INSTANCES, SERVICES, service_view, summary_lines
from croupier.cli.flags import LOCAL, TIMED_OUT, JsonFlag, MasterFlag
from croupier.cli.table import print_table
from croupier.cli.terminal import print_lines
from croupier.model.durations import parse_duration
from croupier.model.errors import Conflict, InvalidRequest, NotFound, Unavailable
from croupier.process.cli import read_by

START_S: Final = 30.0
# Time for a controller to end when another takes over.
RELEASE_S: Final = 5.0
POLL_S: Final = 0.2

View = Mapping[str, Any]
StateFlag = Annotated[
    Path | None,
    Parameter(
        name="--state",
        help="Directory of the services' states; $XDG_STATE_HOME/croupier/services if not given.",
    ),
]
NameOrFile = Annotated[str, Parameter(help="Name of the service, or its file.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Following:
    """Common flags of commands that change a service, and follow the change."""

    no_wait: Annotated[bool, Parameter(negative="", help="Return at once; do not follow.")] = False
    timeout: Annotated[
        float | None,
        read_by(parse_duration, name="--timeout", help="Follow no longer than this, such as 5m."),
    ] = None
    state: StateFlag = None


FOLLOWING: Final = Following()


def apply(
    file: Path,
    /,
    *,
    detach: Annotated[bool, Parameter(negative="")] = False,
    takeover: Annotated[bool, Parameter(negative="")] = False,
    following: Following = FOLLOWING,
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
    """
    wanted = read_service(read_job_file(file))
    directory = StateDir(_base(following.state), wanted.name)
    directory.make()
    if takeover:
        _release(directory)
    if detach and not directory.holder():
        return _detach(directory, following)
    deadline = time.monotonic() + START_S
    while not directory.lock():
        try:
            answer = _ask(directory, {"do": "apply", "tables": wanted.tables})
        except Unavailable as error:
            # It may be starting, or ending.
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"service {wanted.name} is held by process {directory.holder()}, which does not"
                    f" answer ({error}): --takeover replaces it"
                ) from None
            time.sleep(POLL_S)
            continue
        is_update = bool(answer["is_update"])
        what = f"version {answer['version']}" if is_update else "same version"
        holder = directory.holder()
        print_lines(f"{wanted.name}: applied to the controller, process {holder}: {what}")
        return _follow(directory, answer["last"], _is_updated, following, is_update=is_update)
    try:
        run = ControllerRun(directory, master, wanted, takes_over=takeover)
        return run_application(master, run.to_the_end)
    finally:
        directory.unlock()


def status(name: NameOrFile = "", /, *, state: StateFlag = None, as_json: JsonFlag = False) -> None:
    """Show a service with its instances, or list all services of this user.

    Example: croupier service status web
    """
    base = _base(state)
    if name:
        view = view_of(StateDir(base, _name_of(name)))
        if as_json:
            print(json.dumps(view, indent=2))
            return
        print_lines(*summary_lines(view))
        print_table(INSTANCES, view["instances"], sys.stdout)
        return
    names = sorted(each.parent.name for each in base.glob("*/service.json"))
    views = [view_of(StateDir(base, each)) for each in names]
    if as_json:
        print(json.dumps(views, indent=2))
    else:
        print_table(SERVICES, views, sys.stdout)


def scale(name: NameOrFile, instances: int, /, *, following: Following = FOLLOWING) -> int:
    """Set the number of instances until a file is applied: croupier service scale web 5.

    Exit codes: 0 all are available; 1 no controller runs; 124 --timeout.

    Args:
        instances: Number of instances; 0 is allowed.
    """
    directory = _running(name, following.state)
    answer = _ask(directory, {"do": "scale", "instances": instances})

    def is_done(view: View) -> bool:
        return bool(view["available"] == view["wanted"] == len(view["instances"]))

    return _follow(directory, answer["last"], is_done, following)


def rollout(
    name: NameOrFile,
    action: Literal["restart", "undo", "pause", "resume", ""] = "",
    /,
    *,
    following: Following = FOLLOWING,
) -> int:
    """Follow the update, or control it: croupier service rollout web undo.

    Exit codes: 0 done; 1 failed or rolled back, or no controller runs; 124 --timeout.

    Args:
        action: restart replaces all instances by new ones of the same version, a few at a time;
            undo returns to the version before; pause and resume halt and continue the update.
    """
    directory = _running(name, following.state)
    last = 0
    if action:
        last = _ask(directory, {"do": "rollout", "action": action})["last"]
    if action == "pause":
        return 0
    return _follow(directory, last, _is_updated, following, is_update=True)


def stop(
    name: NameOrFile, /, *, following: Following = FOLLOWING, master: MasterFlag = LOCAL
) -> int:
    """End all instances, with SIGTERM and the grace of their task, and then the controller.

    Without a controller, this command ends the instances itself. Example: croupier service stop web

    Exit codes: 0 stopped; 1 the master or the controller cannot be reached; 124 --timeout.
    """
    directory = _found(name, following.state)
    if directory.lock():
        try:
            saved = directory.load()
            if saved is None or not saved.framework_id:
                print_lines(f"{directory.name}: is not running")
                return 0
            return run_application(master, ControllerRun(directory, master, None).to_the_end)
        finally:
            directory.unlock()
    answer = _ask(directory, {"do": "stop"})
    code = _follow(directory, answer["last"], lambda view: view["state"] == "stopped", following)
    if not (following.no_wait or code):
        print_lines(f"{directory.name}: stopped")
    return code


def _is_updated(view: View) -> bool:
    rollout = view["rollout"]
    return bool(rollout["is_over"] or rollout["is_paused"])


def _follow(
    directory: StateDir,
    last: int,
    is_done: Callable[[View], bool],
    following: Following,
    *,
    is_update: bool = False,
) -> int:
    """Print what the controller says until `is_done`; return the exit code.

    It is 1 if an update failed or was rolled back, and 124 if the time is over. Without
    `is_update`, an update that was over at the beginning does not count.
    """
    if following.no_wait:
        return 0
    name = directory.name
    limit = following.timeout
    deadline = None if limit is None else time.monotonic() + limit
    counts = is_update
    while True:
        try:
            answer = _ask(directory, {"do": "status", "since": last})
        except Unavailable:
            view = view_of(directory)
            if is_done(view):
                return 0
            raise
        last, view = answer["last"], answer["status"]
        print_lines(*(f"{name}: {line}" for line in answer["lines"]))
        if is_done(view):
            has_failed = view["rollout"]["state"] in ("rolled back", "failed")
            return int(has_failed and counts)
        counts = counts or not view["rollout"]["is_over"]
        if deadline is not None and time.monotonic() >= deadline:
            print_lines(f"croupier: not done after {limit:g} s (--timeout)", file=sys.stderr)
            return TIMED_OUT
        time.sleep(POLL_S)


def _detach(directory: StateDir, following: Following) -> int:
    """Start the same command in the background, and wait until it answers."""
    words = [word for word in sys.argv[1:] if word != "--detach"]
    try:
        fd = os.open(directory.log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise Unavailable(f"cannot write {directory.log_file}: {error.strerror}") from None
    with os.fdopen(fd, "ab") as log:
        begin = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "croupier.ctl", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(Unavailable):
            control_answer = _ask(directory, {"do": "status"})
            if control_answer["status"]["controller_pid"] == process.pid:
                print_lines(
                    f"{directory.name}: the controller is process {process.pid}; log:"
                    f" {directory.log_file}"
                )
                return _follow(directory, 0, _is_updated, following)
        time.sleep(POLL_S)
    said = directory.log_file.read_bytes()[begin:].decode(errors="replace").strip()
    if process.poll() is None:
        print_lines(f"{directory.name}: process {process.pid} waits: {said.rpartition(chr(10))[2]}")
        return 0
    print_lines(*said.splitlines()[-20:], file=sys.stderr)
    return process.returncode or 1


def _release(directory: StateDir) -> None:
    """End the controller on this machine, gracefully or not; raises Conflict if it does not end."""
    with suppress(Unavailable, InvalidRequest):
        _ask(directory, {"do": "release"}, RELEASE_S)
    if _ends(directory):
        return
    holder = directory.holder()
    if holder:
        with suppress(ProcessLookupError):
            os.kill(holder, signal.SIGKILL)
    if not _ends(directory):
        raise Conflict(f"process {directory.holder()} holds the service and does not end")


def _ends(directory: StateDir) -> bool:
    deadline = time.monotonic() + RELEASE_S
    while directory.holder():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _running(named: str, state: Path | None) -> StateDir:
    directory = _found(named, state)
    if not directory.holder():
        raise Conflict(
            f"no controller of service {directory.name} runs: croupier service apply FILE starts it"
        )
    return directory


def _found(named: str, state: Path | None) -> StateDir:
    directory = StateDir(_base(state), _name_of(named))
    if not directory.state_file.exists():
        raise NotFound(f"no service {directory.name!r} in {directory.path.parent}")
    return directory


def view_of(directory: StateDir) -> dict[str, Any]:
    """Return the service as its controller sees it, or as its state says."""
    if directory.holder():
        with suppress(Unavailable):
            view: dict[str, Any] = _ask(directory, {"do": "status"})["status"]
            return view
    saved = directory.load()
    if saved is None:
        raise NotFound(f"no service {directory.name!r} in {directory.path.parent}")
    return service_view(saved, time.time(), controller_pid=directory.holder())


def _name_of(named: str) -> str:
    """Return the name of a service that is given by its name or its file."""
    if named.endswith(SUFFIXES):
        return check_name(read_job_file(Path(named)))
    if not named or "/" in named or named.startswith("."):
        raise InvalidRequest(f"{named[:80]!r} is neither the name of a service nor a service file")
    return named


def _ask(
    directory: StateDir, request: Mapping[str, Any], timeout_s: float = control.ANSWER_S
) -> dict[str, Any]:
    return asyncio.run(control.ask(directory.path, request, timeout_s))


def _base(state: Path | None) -> Path:
    base = state_directory("services") if state is None else state.absolute()
    if base.exists() and not base.is_dir():
        raise InvalidRequest(f"--state {base}: it is not a directory")
    return base
