"""What the isolator of namespaces refuses; `integration/isolation` has real boxes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.isolation.box_view import View
from croupier.agent.isolation.bubblewrap import Bubblewrap
from croupier.agent.isolation.namespaces import LEAST_PIDS, Namespaces
from croupier.agent.shim.build import Shim
from croupier.model.errors import InvalidRequest
from croupier.model.isolation import Feature, Isolation, Limits
from tests.harness.supervisor_fixture import launch_of


def test_a_box_is_not_blamed_on_the_agent_if_its_task_leaves_no_room_for_it(tmp_path: Path) -> None:
    tool = Bubblewrap("/usr/bin/bwrap", by_root=True, shim=Shim(("/shim",)))
    features = frozenset({Feature.NAMESPACES})
    boxes = Namespaces(tool, View((), tmp_path), Limits(pids=100), features, are_all=False)
    launch = replace(launch_of("t1", "/bin/true"), sandbox=str(tmp_path))
    info = replace(launch.info, isolation=Isolation(namespaces=True))
    for pids in range(LEAST_PIDS + 2):
        wanted = replace(launch, info=replace(info, limits=Limits(pids=pids)))
        if 0 < pids < LEAST_PIDS:
            with pytest.raises(InvalidRequest, match="at least 3 pids"):
                boxes.prepare(wanted)
        else:
            assert "boxed" in boxes.prepare(wanted).options
    # Outside of a box, one process is enough.
    assert boxes.prepare(launch_of("t1", "/bin/true")).options == ()
