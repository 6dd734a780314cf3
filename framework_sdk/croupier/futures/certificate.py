"""The certificate of one executor, which its workers know and accept no other.

It proves the executor to its workers and encrypts what they send. Workers prove themselves by
tokens. No file is left: the key never outlives the executor.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

# Clocks of machines may differ; no other party trusts the certificate.
_EARLIER: Final = timedelta(days=365)
_LATER: Final = timedelta(days=3650)


class ExecutorIdentity:
    """The TLS identity of an executor, and the tokens of its workers.

    Attributes:
        certificate: in PEM; workers trust this one only.
        context: for the server.
    """

    def __init__(self) -> None:
        self.certificate, key = _self_signed()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        with tempfile.TemporaryDirectory(prefix="croupier-futures-") as private:
            path = Path(private) / "identity.pem"
            path.touch(mode=0o600)
            path.write_text(key + self.certificate)
            self.context.load_cert_chain(path)
        self._secret = secrets.token_bytes(32)

    def token(self, task_id: str) -> str:
        """Return the token that proves a worker to be this task."""
        return hmac.new(self._secret, task_id.encode(), hashlib.sha256).hexdigest()

    def proves(self, task_id: str, token: str) -> bool:
        """Return whether the token is that of the task, in constant time."""
        return hmac.compare_digest(self.token(task_id).encode(), token.encode())


def _self_signed() -> tuple[str, str]:
    """Return a new certificate and its key, in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "croupier futures")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LATER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()
