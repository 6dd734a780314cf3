"""The `croupier service` commands, apart from the controller itself."""

from __future__ import annotations

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
from typing import Any, Final

from croupier.apps.job_file.section import SUFFIXES, read_job_file
from croupier.apps.service import control
from croupier.apps.service.file import ServiceFile, check_name, read_service
from croupier.apps.service.runner import Start, run_controller
from croupier.apps.service.state_dir import StateDir, check_base, default_base
from croupier.apps.service.status import INSTANCES, SERVICES, service_view, summary_lines
from croupier.cli.flags import TIMED_OUT, Target
from croupier.cli.table import print_table
from croupier.cli.terminal import print_lines
from croupier.model.errors import Conflict, InvalidRequest, NotFound, Unavailable

START_S: Final = 30.0
# Time for a controller to end when another takes over.
RELEASE_S: Final = 5.0
POLL_S: Final = 0.2

View = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Flags of `apply`.

    Attributes:
        state: the directory of all services; None is the user's.
        timeout_s: limit for following an update; None: none.
    """

    state: Path | None
    takes_over: bool = False
    detaches: bool = False
    waits: bool = True
    timeout_s: float | None = None


def apply_file(path: Path, target: Target, options: ApplyOptions) -> int:
    """Apply a service file: start the controller, or give the file to the one that runs.

    Raises:
        CroupierError: if the file is wrong, or the controller cannot start or refuses it.
    """
    file = read_service(read_job_file(path))
    directory = StateDir(_base(options.state), file.name)
    directory.make()
    if options.takes_over:
        _release(directory)
    if options.detaches and not directory.holder():
        return _detach(directory, file, options)
    deadline = time.monotonic() + START_S
    while not directory.lock():
        try:
            answer = _ask(directory, {"do": "apply", "tables": file.tables})
        except Unavailable as error:
            # It may be starting, or ending.
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"service {file.name} is held by process {directory.holder()}, which does not"
                    f" answer ({error}): --takeover replaces it"
                ) from None
            time.sleep(POLL_S)
            continue
        is_update = bool(answer["is_update"])
        what = f"version {answer['version']}" if is_update else "same version"
        print_lines(f"{file.name}: applied to the controller, process {directory.holder()}: {what}")
        return _follow(directory, answer["last"], _is_updated, options, is_update=is_update)
    try:
        return run_controller(directory, target, Start(file, takes_over=options.takes_over))
    finally:
        directory.unlock()


def show_status(named: str, state: Path | None, *, as_json: bool) -> int:
    """Print one service, or all of this user if `named` is empty.

    Raises:
        NotFound: if there is no such service here.
    """
    base = _base(state)
    if named:
        view = view_of(StateDir(base, _name_of(named)))
        if as_json:
            print(json.dumps(view, indent=2))
            return 0
        print_lines(*summary_lines(view))
        print_table(INSTANCES, view["instances"], sys.stdout)
        return 0
    names = sorted(each.parent.name for each in base.glob("*/service.json"))
    views = [view_of(StateDir(base, name)) for name in names]
    if as_json:
        print(json.dumps(views, indent=2))
    else:
        print_table(SERVICES, views, sys.stdout)
    return 0


def scale(named: str, instances: int, options: ApplyOptions) -> int:
    """Set the number of instances, and wait until they are available.

    Raises:
        CroupierError: if no controller runs, or it refuses.
    """
    directory = _running(named, options.state)
    answer = _ask(directory, {"do": "scale", "instances": instances})

    def is_done(view: View) -> bool:
        return bool(view["available"] == view["wanted"] == len(view["instances"]))

    return _follow(directory, answer["last"], is_done, options)


def rollout(named: str, action: str, options: ApplyOptions) -> int:
    """Follow the update, after `action` on it if that is not empty.

    Raises:
        CroupierError: if no controller runs, or it refuses.
    """
    directory = _running(named, options.state)
    last = 0
    if action:
        last = _ask(directory, {"do": "rollout", "action": action})["last"]
    if action == "pause":
        return 0
    return _follow(directory, last, _is_updated, options, is_update=True)


def stop(named: str, target: Target, options: ApplyOptions) -> int:
    """End all instances of a service; without a controller, this command is one.

    Raises:
        NotFound: if there is no such service here.
        CroupierError: if the controller refuses.
    """
    directory = _found(named, options.state)
    if directory.lock():
        try:
            saved = directory.load()
            if saved is None or not saved.framework_id:
                print_lines(f"{directory.path.name}: is not running")
                return 0
            return run_controller(directory, target, Start(None, stops=True))
        finally:
            directory.unlock()
    answer = _ask(directory, {"do": "stop"})
    code = _follow(directory, answer["last"], lambda view: view["state"] == "stopped", options)
    if options.waits and not code:
        print_lines(f"{directory.path.name}: stopped")
    return code


def _is_updated(view: View) -> bool:
    rollout = view["rollout"]
    return bool(rollout["is_over"] or rollout["is_paused"])


def _follow(
    directory: StateDir,
    last: int,
    is_done: Callable[[View], bool],
    options: ApplyOptions,
    *,
    is_update: bool = False,
) -> int:
    """Print what the controller says until `is_done`; return the exit code.

    It is 1 if an update failed or was rolled back, and 124 if the time is over. Without
    `is_update`, an update that was over at the beginning does not count.
    """
    if not options.waits:
        return 0
    name = directory.path.name
    limit = options.timeout_s
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


def _detach(directory: StateDir, file: ServiceFile, options: ApplyOptions) -> int:
    """Start the same command in the background, and wait until it answers."""
    words = [word for word in sys.argv[1:] if word not in ("--detach", "--takeover")]
    words += ["--takeover"] if options.takes_over else []
    try:
        log = open(directory.log_file, "ab", opener=_private)  # noqa: SIM115
    except OSError as error:
        raise Unavailable(f"cannot write {directory.log_file}: {error.strerror}") from None
    with log:
        begin = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "croupier.ctl", *words],
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
                    f"{file.name}: the controller is process {process.pid}; log:"
                    f" {directory.log_file}"
                )
                return _follow(directory, 0, _is_updated, options)
        time.sleep(POLL_S)
    said = directory.log_file.read_bytes()[begin:].decode(errors="replace").strip()
    if process.poll() is None:
        print_lines(f"{file.name}: process {process.pid} waits: {said.rpartition(chr(10))[2]}")
        return 0
    print_lines(*said.splitlines()[-20:], file=sys.stderr)
    return process.returncode or 1


def _release(directory: StateDir) -> None:
    """End the controller on this machine, gracefully or not.

    Raises:
        Conflict: if it does not end.
    """
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
            f"no controller of service {directory.path.name} runs: croupier service apply FILE"
            " starts it"
        )
    return directory


def _found(named: str, state: Path | None) -> StateDir:
    directory = StateDir(_base(state), _name_of(named))
    if not directory.state_file.exists():
        raise NotFound(f"no service {directory.path.name!r} in {directory.path.parent}")
    return directory


def view_of(directory: StateDir) -> dict[str, Any]:
    """Return the service as its controller sees it, or as its state says."""
    if directory.holder():
        with suppress(Unavailable):
            view: dict[str, Any] = _ask(directory, {"do": "status"})["status"]
            return view
    saved = directory.load()
    if saved is None:
        raise NotFound(f"no service {directory.path.name!r} in {directory.path.parent}")
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
    import asyncio

    return asyncio.run(control.ask(directory.path, request, timeout_s))


def _base(state: Path | None) -> Path:
    return check_base(default_base() if state is None else state.absolute())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
