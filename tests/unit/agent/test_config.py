from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from croupier.agent.config import AgentConfig
from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.process.tls.flags import TlsFlags


def test_defaults_use_only_loopback() -> None:
    config = AgentConfig()
    assert config.http.is_loopback
    assert config.master == (Address("127.0.0.1", 5050),)
    assert config.hostname


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"http": Address("0.0.0.0", 5081)}, "or --insecure to accept that"),
        ({"master": (Address("10.0.0.1", 5050),)}, "10.0.0.1:5050 is on another machine"),
        (
            {"master": (Address("localhost", 1), Address("m2", 1))},
            "the master at m2:1 is on another",
        ),
        ({"master": ()}, "--master names no master"),
        ({"master": (Address("localhost", 0),)}, "port 0 cannot be connected to"),
        ({"hostname": ""}, "--hostname: a hostname has 1 to 255 printable characters"),
        ({"hostname": "a\nb"}, "--hostname"),
        ({"hostname": "a" * 256}, "--hostname"),
    ],
)
def test_invalid_values_are_rejected(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        AgentConfig(**values)


def test_insecure_allows_other_machines() -> None:
    assert AgentConfig(http=Address("0.0.0.0", 5081), insecure=True).insecure
    assert AgentConfig(master=(Address("m1", 5050),), insecure=True).insecure
    # It connects to no master.
    assert AgentConfig(master=(Address("m1", 5050),), recover="cleanup").master


def test_tls_allows_other_machines() -> None:
    pair: dict[str, Any] = {"tls_cert": Path("/cert"), "tls_key": Path("/key")}
    everywhere, remote = Address("0.0.0.0", 5081), (Address("m1", 5050),)
    config = AgentConfig(http=everywhere, master=remote, tls=TlsFlags(**pair, tls_ca=Path("/ca")))
    assert not config.is_confined, "a redirect may lead to another machine"
    with pytest.raises(InvalidRequest, match="give --tls-ca, or --insecure"):
        AgentConfig(http=everywhere, master=remote, tls=TlsFlags(**pair))
    with pytest.raises(InvalidRequest, match="give --tls-cert and --tls-key, or --insecure"):
        AgentConfig(http=everywhere, tls=TlsFlags(tls_ca=Path("/ca")))
