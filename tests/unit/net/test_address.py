"""Addresses in the form HOST:PORT, parsed and formatted."""

from __future__ import annotations

import pytest

from croupier.model.errors import InvalidRequest
from croupier.net.address import Address, check_http_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:5050", Address("127.0.0.1", 5050)),
        (" localhost:0 ", Address("localhost", 0)),
        ("[::1]:5050", Address("::1", 5050)),
        ("master.example.org:65535", Address("master.example.org", 65535)),
    ],
)
def test_an_address_is_read_and_written_back(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(("text", "host"), [("h", "h"), ("h:", "h"), ("[::1]", "::1")])
def test_a_port_may_have_a_default(text: str, host: str) -> None:
    assert Address.parse(text, default_port=5050) == Address(host, 5050)
    with pytest.raises(InvalidRequest, match="is not a port"):
        Address.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", ":5050", "h:65536", "h:-1", "h:x", "h:\u0661", "h:1:2", "::1", "[::1", "[::1]x",
        "[]:1", "a b:1", "user@h:1", "http://h:1", "h:123456", "h: 1 2", "h,g:1",
    ],
)  # fmt: skip
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Address.parse(text)


def test_a_list_of_addresses() -> None:
    assert parse_addresses("a:1, b:2,") == (Address("a", 1), Address("b", 2))
    assert parse_addresses("a", default_port=7) == (Address("a", 7),)
    for text in ("", " , "):
        with pytest.raises(InvalidRequest, match="no address"):
            parse_addresses(text)


def test_loopback() -> None:
    inside = ["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"]
    assert all(Address.parse(text).is_loopback for text in inside)
    outside = ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "h:1"]
    assert not any(Address.parse(text).is_loopback for text in outside)


def test_a_name_that_looks_like_loopback_is_not() -> None:
    assert not Address.parse("127.example.org:1").is_loopback


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.2:5081",
        "https://a1.example.org:5081",
        "[2001:db8::1]:5081",
        "127.0.0.1:1",
        "http://knoten-ä:5081",
    ],
)
def test_the_address_of_an_agent_is_kept(text: str) -> None:
    assert check_http_address(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        "javascript://a1:80",
        "ftp://a1:80",
        "https://http://a1:80",
        "user@a1:80",
        "a1:80/path",
        "a1:80?x",
        "a<b:80",
        "a1",
        "169.254.169.254:80",
        "http://[fe80::1]:5081",
        "0.0.0.0:5081",
        "[::]:5081",
        "224.0.0.1:80",
        f"{'a' * 300}:80",
    ],
)
def test_an_address_that_no_agent_has_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        check_http_address(text)
