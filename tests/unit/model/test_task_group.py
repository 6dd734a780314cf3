"""Which tasks can be a group; `scenarios/groups.txt` tells the rest."""

from __future__ import annotations

import pytest

from croupier.model.errors import InvalidRequest
from croupier.model.task_group import GroupPart, check_parts


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([], "group g has no tasks"),
        ([GroupPart.SIDECAR], "group g has sidecars only"),
        ([GroupPart.LEADER] * 2, "group g has more than one leader"),
    ],
)
def test_what_is_no_group(parts: list[GroupPart], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        check_parts("g", parts)
