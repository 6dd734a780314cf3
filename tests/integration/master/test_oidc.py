"""Tokens of an identity provider over real gRPC."""

from __future__ import annotations

import time
from pathlib import Path

import grpc

from croupier.master.flags import OidcFlags
from croupier.master.oidc import SKEW_S
from croupier.model.access import Action
from croupier.v1 import access_pb2
from croupier.v1.access_pb2_grpc import AccessServiceStub
from tests.harness.identity_provider import AUDIENCE, identity_provider
from tests.harness.masters import RawFramework
from tests.harness.secured import bearing, secured_master
from tests.integration.master.test_authentication import call

_STATUS = grpc.StatusCode


async def test_a_group_of_the_provider_gives_rights_until_the_token_expires(tmp_path: Path) -> None:
    async with identity_provider() as provider:
        flags = OidcFlags(oidc_issuer=provider.issuer, oidc_audience=AUDIENCE)
        async with secured_master(tmp_path, oidc=flags) as secured:
            secured.join("submitters", "oidc:batch")
            secured.allow("group:submitters", [Action.REGISTER], "role:**")
            token = provider.token(groups=["batch"], exp=time.time() - SKEW_S + 3)
            who = (AccessServiceStub, "WhoAmI", access_pb2.WhoAmIRequest())
            found = await call(secured, bearing(token), *who)
            assert (found.principal, list(found.groups), found.credential) == (
                "oidc/alice@example.com",
                ["oidc:batch", "submitters"],
                "oidc",
            )
            async with RawFramework(secured.master.address, bearing(token)) as framework:
                await framework.subscribe()
                await framework.next("error")
                status, text = await framework.ended()
            # Not fatal: the framework connects again, with the token that its file holds by then.
            assert (status, "expired" in text) == (_STATUS.UNAVAILABLE, True)
            for refused in (token, provider.token(aud="other"), provider.token()[:-2]):
                answer = await call(secured, bearing(refused), *who)
                assert answer is _STATUS.UNAUTHENTICATED
            provider.status = 500
            assert secured.master._security is not None
            broken = flags.provider(secured.master._clock)
            assert broken is not None
            secured.master._security.authenticator.verify_other = broken.verify
            answer = await call(secured, bearing(provider.token()), *who)
            assert answer is _STATUS.UNAVAILABLE
