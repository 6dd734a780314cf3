"""Builds the isolator of tasks with an image, if this machine has the tools for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Final

from croupier.agent.core.events import LaunchFailed, Prepared
from croupier.agent.isolation.container import Container, containers_of
from croupier.agent.isolation.container_runtime import find_runtime
from croupier.agent.isolation.image_pulls import Pulls
from croupier.agent.isolation.image_store import ImageStore
from croupier.agent.isolation.image_tools import ImageTools, find_tool
from croupier.agent.isolation.isolator import Isolator
from croupier.agent.isolation.layers import Layers
from croupier.agent.isolation.setting import Setting
from croupier.model.errors import InvalidRequest, Unavailable

# The longest time to copy an image, and the longest to unpack it.
PULL_S: Final = 600.0


def build_container(setting: Setting) -> Iterator[Isolator]:
    """Yield the isolator. Blocks while it starts a container for trial.

    Raises:
        Unavailable: if a tool is missing or does not work here.
        InvalidRequest: if a directory for images holds the work dir.
        OSError: if the work dir cannot be written to.
    """
    flags, work_dir = setting.flags, setting.work_dir
    for root in flags.image_roots:
        if work_dir.is_relative_to(root.resolve()) or work_dir.is_relative_to(root):
            raise InvalidRequest(f"--image-roots: {root} holds the agent's work dir")
    tools = ImageTools(find_tool("skopeo"), find_tool("umoci"), PULL_S, threading.Event())
    if tools.missing and not flags.image_roots:
        raise Unavailable(f"{tools.missing} is not installed, and there are no --image-roots")
    directory = containers_of(work_dir)
    directory.mkdir(mode=0o700, exist_ok=True)
    runtime = find_runtime(directory, flags.container_runtime)
    images = work_dir / "images"
    images.mkdir(mode=0o700, exist_ok=True)
    store = ImageStore(images, tools, flags.image_cache, directory)
    yield Container(work_dir, runtime, store, flags.image_roots)


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
