"""The command of a worker (`python -c`): connects to its executor and runs what that sends.

Rule: it runs on any Python 3.6 or newer, so that another version gets a clear error.
"""
# ruff: noqa: E401, I001

import json, marshal, os, platform, socket, ssl, struct, sys


def connect(given: dict) -> ssl.SSLSocket:  # type: ignore[type-arg]
    """Connect to the executor, which must have the certificate that was given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=given["certificate"])
    try:
        plain = socket.create_connection((given["host"], given["port"]), 30)
        return context.wrap_socket(plain)
    except OSError as error:
        sys.stderr.write(f"cannot reach the executor at {given['host']}:{given['port']}: {error}\n")
        sys.exit(given["unreachable"])


def read(link: ssl.SSLSocket, size: int) -> bytes:
    """Read exactly so many bytes."""
    data = b""
    while len(data) < size:
        more = link.recv(min(size - len(data), 1 << 16))
        if not more:
            sys.exit("the executor closed the connection")
        data += more
    return data


given = json.loads(os.environ.pop("CROUPIER_FUTURES"))
link = connect(given)
said = {
    "task": given["task"],
    "token": given["token"],
    "host": socket.gethostname(),
    "python": platform.python_version(),
    "implementation": sys.implementation.name,
    "minor": list(sys.version_info[:2]),
}
hello = json.dumps(said).encode()
link.sendall(struct.pack("!I", len(hello)) + hello)
refused, size = struct.unpack("!BI", read(link, 5))
body = read(link, size)
if refused:
    sys.exit(body.decode())
# From the peer that has the certificate.
exec(marshal.loads(body), {"__name__": "croupier_futures_worker", "link": link})  # noqa: S102, S302
