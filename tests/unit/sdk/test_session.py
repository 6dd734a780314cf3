"""The bounds of a framework's connection."""

from __future__ import annotations

import pytest

from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.net.outbox import Outbox
from croupier.sdk import Framework
from croupier.v1 import framework_pb2 as pb


async def test_all_unanswered_calls_fit_however_large_they_are() -> None:
    framework = Framework(master="127.0.0.1:1")
    outbox: Outbox[pb.Call] = framework._session._connection.make_outbox()
    large = pb.Call(accept=pb.Accept(offer_ids=["o" * 1_000_000]))
    for _ in range(Framework._settings.unanswered_limit):
        assert outbox.put(large)


@pytest.mark.parametrize(
    ("master", "latest", "is_sent"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("10.0.0.1:1", "10.0.0.1:1", False),
        # Another master may lead next, and one may redirect to a machine that is not listed.
        ("127.0.0.1:1,10.0.0.1:1", "127.0.0.1:1", False),
        ("127.0.0.1:1", "10.0.0.1:1", False),
    ],
)
async def test_secrets_are_not_sent_unencrypted_to_another_machine(
    master: str, latest: str, is_sent: bool
) -> None:
    session = Framework(master=master)._session
    session._connection.address = Address.parse(latest)
    session.check_secrets(is_insecure=True)
    if is_sent:
        session.check_secrets()
    else:
        with pytest.raises(InvalidRequest, match="insecure=True"):
            session.check_secrets()
