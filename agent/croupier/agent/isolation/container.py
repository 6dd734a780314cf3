"""The isolator of tasks with an image: each runs in a container of runc or crun.

What it enforces: the task sees the files of its image, which it cannot change, its sandbox, and
its own processes. It has no capabilities and gets none. container_runtime.py lists all of it. A
task without an image is left to the other isolators.

The shim starts `container run`, which starts the runtime and waits for the container. All that is
made for a run is in WORK_DIR/containers/RUN, or in a mount namespace that ends with its processes.
The runtime needs rights that the task does not get, so the shim's options that take rights away
are left out: the runtime takes them away itself.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from croupier.agent.core.events import NO_ENDING, Ending, LaunchFailed, Prepared
from croupier.agent.isolation.container_runtime import (
    Contents,
    Runtime,
    command,
    configuration,
    find_runtime,
    merged_environment,
)
from croupier.agent.isolation.image_pulls import Pulls
from croupier.agent.isolation.image_store import Image, ImageStore
from croupier.agent.isolation.image_tools import ImageTools, find_tool, parse_image
from croupier.agent.isolation.isolator import Isolator, Launch, Layers, Setting
from croupier.agent.isolation.process import write_filter
from croupier.agent.shim.orphans import VARIABLE
from croupier.agent.unix_user import UnixUser
from croupier.model.errors import CroupierError, InvalidRequest, Unavailable
from croupier.model.isolation import Feature

PREFIX: Final = "E."
# The agent takes these from its own environment; the variables of an image are better.
_OF_MACHINE: Final = ("PATH", "LANG", "LC_ALL", "TZ")
# Of the shim's options, those that the runtime bears or that count for its processes too.
_KEPT: Final = ("group=", "kill=", "limit=", "umask=", "landlock=", "no-new-privs", "run=")
_LOG_BYTES: Final = 4096
# The runtime takes the groups of an agent that is root from its tasks.
_ROOT: Final = UnixUser("root", 0, 0, ())
# The longest time to copy an image, and the longest to unpack it.
PULL_S: Final = 600.0


class Container(Isolator):
    """Runs tasks with an image in containers.

    The shim kills the first process, and with it the container. That is in the control groups of
    its task, which measure it.
    """

    name = "container"
    features = frozenset({Feature.IMAGES})

    def __init__(
        self, work_dir: Path, runtime: Runtime, store: ImageStore, roots: tuple[Path, ...]
    ) -> None:
        """Keep what runs need in `work_dir`/containers; `roots` may hold root directories."""
        self.store, self.roots = store, roots
        self._runtime, self._runs = runtime, work_dir / "runs"
        self._directory = work_dir / "containers"
        self._directory.mkdir(mode=0o700, exist_ok=True)

    def prepare(self, launch: Launch) -> Launch:
        """Configure the container; return its launch. Raises InvalidRequest without the image."""
        if not launch.info.isolation.image:
            return launch
        directory = self._directory / launch.run
        # An earlier life of the agent may have been killed before it started the run.
        self.forget(launch.run)
        (directory / "mount").mkdir(mode=0o700, parents=True)
        image = self._image(launch)
        own = launch.info.command.environment
        environment = merged_environment(image.environment, launch.environment, own, _OF_MACHINE)
        contents = self._contents(launch, directory)
        text = json.dumps(configuration(contents))
        (directory / "config.json").write_text(text, errors="surrogateescape")
        return replace(
            launch,
            argv=command(self._runtime.words, contents, image.root, launch.run),
            environment={PREFIX + name: value for name, value in environment.items()},
            user=None,
            options=tuple(each for each in launch.options if each.startswith(_KEPT)),
        )

    def join(self, launch: Launch) -> Launch:
        """Enter the container, restricted as its task; raises Unavailable if the image is gone."""
        if not launch.info.isolation.image:
            return launch
        try:
            image = self._image(launch)
        except InvalidRequest as error:
            raise Unavailable(str(error)) from error
        given, own = launch.environment, launch.info.command.environment
        options = [each for each in launch.options if each.startswith(_KEPT)]
        options += ["bounding=0", *{"no-new-privs"}.difference(options)]
        if self._filter is not None:
            options.append(f"seccomp={self._filter}")
        return replace(
            launch,
            environment=merged_environment(image.environment, given, own, _OF_MACHINE),
            user=launch.user or (_ROOT if os.geteuid() == 0 else None),
            options=tuple(options),
            joins=True,
        )

    def end(self, run: str) -> Ending:
        """Return why the runtime failed, if it did."""
        why = self._failure(run)
        return Ending(notes=(f"the container runtime failed: {why}",)) if why else NO_ENDING

    def forget(self, run: str) -> None:
        """Remove the directory of the run."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._directory / run)

    def clean(self, known: Collection[str]) -> None:
        """Remove the directories of other runs, and what pulls have left."""
        for each in self._directory.iterdir():
            if each.name not in known and each.is_dir():
                shutil.rmtree(each)
        self.store.clean()

    @cached_property
    def _filter(self) -> Path | None:
        """The filter that the runtime makes of its profile, for commands that join."""
        return write_filter(self._directory, has_ports=False)

    def _image(self, launch: Launch) -> Image:
        text = launch.info.isolation.image
        try:
            image = self.store.use(parse_image(text, self.roots), launch.run)
        except CroupierError as error:
            raise InvalidRequest(str(error)) from error
        if image is None:
            raise InvalidRequest(f"image {text} was removed before the task was started")
        return image

    def _contents(self, launch: Launch, directory: Path) -> Contents:
        is_root = os.geteuid() == 0
        user = launch.user
        groups = () if user is None else user.groups
        uid = os.geteuid() if user is None else user.uid
        gid = os.getegid() if user is None else user.gid
        return Contents(
            directory,
            self._runtime.program,
            launch.argv,
            launch.sandbox,
            f"{VARIABLE}={self._runs / launch.run}",
            # An agent that is not root maps its own account to 0.
            uid if is_root else 0,
            gid if is_root else 0,
            groups if is_root else (),
            launch.options,
            has_network=not launch.info.isolation.no_network,
            read_only=launch.read_only,
            shared=launch.shared,
        )

    def _failure(self, run: str) -> str:
        try:
            with (self._directory / run / "log").open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _LOG_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        errors = [line for line in lines if "level=error" in line or "level=" not in line]
        return errors[-1][-300:] if errors else ""


def build_container(setting: Setting) -> Container:
    """Return the isolator, after a trial container; raises Unavailable or InvalidRequest."""
    flags, work_dir = setting.flags, setting.work_dir
    for root in flags.image_roots:
        if work_dir.is_relative_to(root.resolve()) or work_dir.is_relative_to(root):
            raise InvalidRequest(f"--image-roots: {root} holds the agent's work dir")
    tools = ImageTools(find_tool("skopeo"), find_tool("umoci"), PULL_S, threading.Event())
    if tools.missing and not flags.image_roots:
        raise Unavailable(f"install {tools.missing}, or give --image-roots")
    directory = work_dir / "containers"
    directory.mkdir(mode=0o700, exist_ok=True)
    runtime = find_runtime(directory, flags.container_runtime)
    images = work_dir / "images"
    images.mkdir(mode=0o700, exist_ok=True)
    store = ImageStore(images, tools, flags.image_cache, directory)
    return Container(work_dir, runtime, store, flags.image_roots)


def pulls_of(
    layers: Layers, put: Callable[[Prepared | LaunchFailed], None], opened: AsyncExitStack
) -> Pulls | None:
    """Return what fetches images for tasks, until `opened` ends, if tasks can have some."""
    container = next((each for each in layers.isolators if isinstance(each, Container)), None)
    if container is None:
        return None
    pulls = Pulls(container.store, container.roots, put)
    opened.callback(pulls.close)
    return pulls
