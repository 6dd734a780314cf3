"""A link is good for one path on one agent, and for about a minute."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from croupier.model.errors import PermissionDenied
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.net.output_links import (
    SKEW_S,
    VALID_S,
    check_link,
    derive_key,
    output_path,
    sign,
    signed_link,
)

NOW = 1_700_000_000
EXPIRES = NOW + VALID_S
KEY = derive_key("secret of the cluster", AgentId("A1"))
PATH = output_path(FrameworkId("F1"), TaskId("t 1"), "stdout")


def test_a_fresh_link_is_valid_by_clocks_that_differ_a_little() -> None:
    parts = urlsplit(signed_link(KEY, PATH, EXPIRES))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert (unquote(parts.path), parts.path) == (PATH, "/output/F1/t%201/stdout")
    for clock in (NOW, NOW - SKEW_S, EXPIRES, EXPIRES + SKEW_S):
        check_link(KEY, PATH, query["expires"], query["signature"], clock)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"now_s": EXPIRES + SKEW_S + 1}, "expired 31 s ago by the clock"),
        ({"now_s": NOW - SKEW_S - 1}, "expires in 91 s by the clock"),
        ({"now_s": NOW + 3600}, "expired"),
        ({"now_s": NOW - 3600}, "clocks of this agent and of the master differ"),
        ({"path": PATH.replace("stdout", "stderr")}, "signature"),
        ({"path": PATH.replace("F1", "F2")}, "signature"),
        ({"key": derive_key("secret of the cluster", AgentId("A2"))}, "signature"),
        ({"key": derive_key("another secret", AgentId("A1"))}, "signature"),
        ({"expires": str(EXPIRES + 1)}, "signature"),
        ({"expires": ""}, "signature"),
        ({"expires": "9" * 5000}, "signature"),
        ({"expires": "-1"}, "signature"),
        ({"expires": "\u0661"}, "signature"),
        ({"signature": ""}, "signature"),
        ({"signature": "\udcff"}, "signature"),
        ({"expires": "", "signature": sign(KEY, PATH, 0)}, "signature"),
    ],
)
def test_any_change_of_a_link_is_refused(change: dict[str, object], reason: str) -> None:
    link: dict[str, object] = {
        "key": KEY, "path": PATH, "expires": str(EXPIRES),
        "signature": sign(KEY, PATH, EXPIRES), "now_s": NOW,
    }  # fmt: skip
    with pytest.raises(PermissionDenied, match=reason):
        check_link(**(link | change))  # type: ignore[arg-type]
