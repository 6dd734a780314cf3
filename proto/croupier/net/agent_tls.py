"""TLS with an agent's HTTP server, as its readers use it.

Rule: the certificate must be that of the agent whose output is read: its SAN URI is
`croupier://CLUSTER/agent/ID`. No other certificate of the same authority passes for the
agent's, and the agent may listen on any address. If the authorities name no cluster, the host's
name is verified instead.
"""

from __future__ import annotations

import ssl

from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId
from croupier.model.principal import PrincipalKind
from croupier.net.credentials import ClientSecurity, read_pem
from croupier.net.trust_domain import split_uri


def agent_context(security: ClientSecurity, agent_id: AgentId) -> ssl.SSLContext:
    """Return the TLS settings for connections to an agent; the file of authorities is read now.

    Raises:
        InvalidRequest: if there are no authorities, or their file cannot be used.
    """
    if security.ca is None:
        raise InvalidRequest("the agent serves its output over TLS; give --tls-ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=read_pem(security.ca).decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise InvalidRequest(f"{security.ca} has no certificate of an authority") from None
    domains = security.trust_domains()
    if domains:
        context.check_hostname = False
        context.sslobject_class = _verifying(domains, agent_id)
    return context


def _verifying(domains: frozenset[str], agent_id: AgentId) -> type[ssl.SSLObject]:
    """Return a class whose handshake ends with a check of the peer's identity."""
    expected = f"{PrincipalKind.AGENT.value}/{agent_id}"

    class Verifying(ssl.SSLObject):
        def do_handshake(self) -> None:
            """Do the handshake, and check the identity of the peer."""
            super().do_handshake()
            names = (self.getpeercert() or {}).get("subjectAltName", ())
            uris = [split_uri(str(each[1])) for each in names if each[0] == "URI"]
            found = [uri[1] for uri in uris if uri is not None and uri[0] in domains]
            if expected not in found:
                raise ssl.SSLCertVerificationError(
                    f"the certificate is of {', '.join(found) or 'no principal of this cluster'},"
                    f" not of {expected}"
                )

    return Verifying
