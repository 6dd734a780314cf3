"""Bearer tokens."""

from __future__ import annotations

import hashlib

import pytest

from croupier.model.errors import InvalidRequest
from croupier.model.token import BearerToken

SECRET = "s" * 43


def test_the_text_of_a_token_is_parsed() -> None:
    token = BearerToken("0a1b2c3d", SECRET)
    assert BearerToken.parse(token.text) == token
    assert token.hash == hashlib.sha256(SECRET.encode()).digest()


def test_no_representation_shows_the_secret() -> None:
    token = BearerToken("0a1b2c3d", SECRET)
    assert SECRET not in repr(token) + str(token) + f"{token}"


@pytest.mark.parametrize(
    "text",
    ["", "crp_", f"crp_0a1b2c3_{SECRET}", f"crp_0A1B2C3D_{SECRET}", f"crp_0a1b2c3d_{SECRET}s",
     f"crp_0a1b2c3d_{SECRET}\n", f"Bearer crp_0a1b2c3d_{SECRET}", f"crp_0a1b2c3d_{'é' * 43}"],
)  # fmt: skip
def test_another_form_is_refused_without_a_quote(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        BearerToken.parse(text)
    assert "sss" not in str(caught.value)
