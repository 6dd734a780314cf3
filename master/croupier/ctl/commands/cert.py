"""`croupier cert`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import CHANGE, LOCAL, Change, JsonFlag, JsonListFlag, MasterFlag
from croupier.ctl.app import family
from croupier.ctl.certificates.certificate import Leaf, utc_now
from croupier.ctl.certificates.directory import (
    AuthorityDirectory,
    CertificateFiles,
    certificate_lines,
    certificate_view,
    certificate_views,
)
from croupier.ctl.commands.access import change_policy, get_policy
from croupier.ctl.operation import print_objects, print_result
from croupier.ctl.views.policy import REVOKED
from croupier.model.access import KEY_DIGITS
from croupier.model.durations import parse_duration
from croupier.model.errors import Conflict, InvalidRequest
from croupier.net.certificate import read_certificates
from croupier.process.cli import read_by
from croupier.v1 import access_pb2 as pb

cert = family(
    "cert",
    "For clusters without an authority of their own. DIR has ca.crt, which goes to every machine,"
    " and ca.key, which stays.",
)


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


DirFlag = Annotated[Path, Parameter(name="--dir", help="Directory of croupier cert init.")]
DaysFlag = Annotated[int, Parameter(name="--days", help="Days that the certificate is valid.")]
OverwriteFlag = Annotated[
    bool, Parameter(name="--force", negative="", help="Replace files that exist.")
]
AddressFlag = Annotated[
    tuple[str, ...],
    read_by(
        _hosts,
        name="--address",
        show_default=False,
        help="HOST[,HOST]: DNS names and IP addresses of its listeners.",
    ),
]
HERE = Path()
LEAF_DAYS = 30
CA_DAYS = 1825


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Issuing:
    """Common flags of commands that sign a certificate."""

    directory: DirFlag = HERE
    days: DaysFlag = LEAF_DAYS
    force: OverwriteFlag = False
    as_json: JsonFlag = False


ISSUING = Issuing()


@cert.command(name="init")
def init(
    directory: Path,
    /,
    *,
    cluster: str,
    days: DaysFlag = CA_DAYS,
    force: OverwriteFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Create a private certificate authority (CA) in a directory.

    Args:
        directory: Directory of the authority. It is created, for its owner only, if it does not
            exist.
        cluster: Name of the cluster in all its certificates, such as prod: lower-case letters,
            digits and '-'. Other clusters refuse these certificates.
    """
    made = AuthorityDirectory(directory).init(cluster, days, utc_now(), force=force)
    _print(
        made,
        f"{made.cert}  certificate of the authority: copy it to every machine",
        f"{made.key}  its key: keep it here, or offline",
        "",
        "Next, make a certificate for each master and agent, and for each person or program:",
        "",
        f"  croupier cert master m1 --address HOST --dir {directory}",
        f"  croupier cert agent a1 --address HOST --dir {directory}",
        f"  croupier cert client admin --dir {directory}",
        as_json=as_json,
    )


@cert.command(name="master")
def master(name: str, /, *, address: AddressFlag, issuing: Issuing = ISSUING) -> None:
    """Issue the certificate of a master.

    Args:
        name: Name of the master, such as m1; different for each.
    """
    _issue(Leaf("master", name, address), issuing)


@cert.command(name="agent")
def agent(agent_id: str, /, *, address: AddressFlag = (), issuing: Issuing = ISSUING) -> None:
    """Issue the certificate of an agent.

    Agents can join with a token instead: croupier token create join.

    Args:
        agent_id: Id with which the agent registers; different for each.
    """
    _issue(Leaf("agent", agent_id, address), issuing)


@cert.command(name="client")
def client(name: str, /, *, issuing: Issuing = ISSUING) -> None:
    """Issue the certificate of a person or a program, the principal client/NAME.

    client/admin is an administrator. Grant permissions to others with croupier access.

    Args:
        name: Name of the client, such as alice or ci.
    """
    _issue(Leaf("client", name), issuing)


@cert.command(name="etcd")
def etcd(name: str, /, *, address: AddressFlag, issuing: Issuing = ISSUING) -> None:
    """Issue the certificate of an etcd member. It gives no access to the masters.

    Args:
        name: Name of the member, such as e1.
    """
    _issue(Leaf("etcd", name, address), issuing)


@cert.command(name="renew")
def renew(
    *paths: Path,
    directory: Annotated[Path | None, Parameter(name="--dir")] = None,
    days: DaysFlag = LEAF_DAYS,
    within: Annotated[str, Parameter(show_default=False)] = "",
    as_json: JsonListFlag = False,
) -> None:
    """Renew certificates: same names, same key, new validity period.

    Only the certificate's file is replaced, so that it always matches its key.

    Args:
        paths: Certificate files, or a directory of croupier cert init: all certificates in it.
        directory: Directory of croupier cert init. Default: the directory of the certificate.
        within: Renew only certificates that expire within this time, such as 10d. Meant for timers.
    """
    within_s = parse_duration(within) if within else None
    renewed, now = [], utc_now()
    for path in paths or (HERE,):
        is_directory = path.is_dir()
        own = AuthorityDirectory(directory or (path if is_directory else path.parent))
        files = AuthorityDirectory(path).leaves() if is_directory else [path]
        if within_s is not None:
            until_s = now.timestamp() + within_s
            files = [each for each in files if read_certificates(each)[0].expires_at < until_s]
            if files and len(own.authorities()) > 1:
                raise Conflict(
                    f"{own.ca} has an old authority; finish the rotation, or renew without --within"
                )
        renewed += [own.renew(file, days, now) for file in files]
    lines = [
        f"{made.cert}  renewed until {made.certificate.not_valid_after_utc:%Y-%m-%d}; its key is"
        " the same"
        for made in renewed
    ]
    next_step = "Copy each to its machine. Daemons read a replaced file again by themselves."
    lines += ["", next_step] if renewed else ["no certificate needs to be renewed"]
    print_result([_view(made) for made in renewed], *lines, as_json=as_json)


@cert.command(name="rotate")
def rotate(
    directory: Path,
    /,
    *,
    finish: Annotated[bool, Parameter(negative="")] = False,
    days: DaysFlag = CA_DAYS,
    as_json: JsonFlag = False,
) -> None:
    """Replace a certificate authority without an interruption.

    ca.crt holds the new and the old authority until --finish. Croupier's daemons reload it. Restart
    the members of etcd one by one whenever ca.crt has changed, and before you renew certificates:
    otherwise no master can start. The command prints the steps.

    Args:
        directory: Directory of croupier cert init.
        finish: Remove the old authority, once all certificates are renewed and copied.
    """
    authority = AuthorityDirectory(directory)
    if finish:
        _print(
            authority.finish_rotation(),
            f"{authority.ca}  has the new authority only: copy it to every machine, then restart"
            " the members of etcd one by one: until then they trust the old one, too",
            as_json=as_json,
        )
        return
    _print(
        authority.rotate(days, utc_now()),
        f"{authority.ca}  has the new and the old authority",
        f"{authority.key}  key of the new authority, which signs from now on",
        "",
        "Next, in this order:",
        "",
        f"  1. Copy {authority.ca} to every machine. Croupier reads it again by itself.",
        "  2. Restart the members of etcd one by one: etcd reads it only at its start.",
        f"  3. croupier cert renew {directory}    and copy each certificate to its machine",
        f"  4. croupier cert rotate {directory} --finish    and copy ca.crt to every machine; then"
        " restart the members of etcd once more",
        as_json=as_json,
    )


@cert.command(name="revoke")
def revoke(
    named: str,
    /,
    *,
    description: Annotated[str, Parameter(help="A note for the list.")] = "",
    change: Change = CHANGE,
) -> None:
    """Refuse the certificates of an agent or a client. Their open connections end at once.

    The key is revoked, and with it every renewal of the certificate. A certificate that is issued
    again with --force has a new key.

    Args:
        named: Certificate file (PEM), or the id of its key, as cert show and the audit log print
            it.
    """
    key_id = named
    if not re.fullmatch(rf"[0-9a-f]{{{KEY_DIGITS}}}", named):
        found = read_certificates(Path(named))[0]
        kind = found.identity.partition("/")[0]
        if kind not in ("agent", "client"):
            raise InvalidRequest(
                f"{named} is no certificate of an agent or a client; to revoke one of a master or"
                " etcd, replace the authority (croupier cert rotate, or cert init)"
            )
        key_id = found.key_id
        description = ": ".join(filter(None, (found.identity, description)))
    key = pb.RevokedKey(key_id=key_id, description=description)
    change_policy(lambda _: [pb.PolicyChange(revoke_key=key)], change)


@cert.command(name="revoked")
def revoked(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List the revoked keys."""
    print_objects(REVOKED, get_policy(master)["revoked_keys"], as_json=as_json)


@cert.command(name="restore")
def restore(key: str, /, *, change: Change = CHANGE) -> None:
    """Accept certificates with a revoked key again.

    Args:
        key: Id of the key, as croupier cert revoked prints it.
    """
    change_policy(lambda _: [pb.PolicyChange(restore_key=key)], change)


@cert.command(name="show")
def show(*paths: Path, as_json: JsonListFlag = False) -> None:
    """Show certificates: names, uses, and days left.

    Args:
        paths: Certificate files (PEM), or directories with .crt files.
    """
    views = [view for path in paths or (HERE,) for view in certificate_views(path, utc_now())]
    lines = [line for view in views for line in certificate_lines(view)]
    print_result(views, *lines, as_json=as_json)


def _issue(leaf: Leaf, issuing: Issuing) -> None:
    """Sign a certificate; raises as `AuthorityDirectory.issue`."""
    directory, days = issuing.directory, issuing.days
    made = AuthorityDirectory(directory).issue(leaf, days, utc_now(), force=issuing.force)
    expires = f"{made.certificate.not_valid_after_utc:%Y-%m-%d}"
    _print(
        made,
        f"{made.cert}  certificate, valid for {days} days, until {expires}",
        f"{made.key}  its private key: keep it secret",
        "",
        *_next_lines(leaf, made),
        "",
        f"Renew it in time: croupier cert renew {made.cert} --dir {directory}",
        as_json=issuing.as_json,
    )


def _print(made: CertificateFiles, *lines: str, as_json: bool) -> None:
    print_result(_view(made), *lines, as_json=as_json)


def _view(made: CertificateFiles) -> dict[str, object]:
    return {**certificate_view(made.certificate, made.cert, utc_now()), "key": str(made.key)}


def _next_lines(leaf: Leaf, made: CertificateFiles) -> list[str]:
    cert, key = made.cert.name, made.key.name
    flags = f"--tls-ca ca.crt --tls-cert {cert} --tls-key {key}"
    host = leaf.hosts[0] if leaf.hosts else "HOST"
    match leaf.kind:
        case "master":
            command = f"croupier-master --listen {host}:5050 --http {host}:5080 {flags}"
        case "agent":
            command = f"croupier-agent --master MASTER:5050 --http {host}:5081 {flags}"
        case "etcd":
            own = f"--cert-file {cert} --key-file {key} --trusted-ca-file ca.crt"
            command = f"etcd {own} --client-cert-auth ..."
        case _:
            command = f"croupier doctor --master MASTER:5050 {flags}"
    return [f"Copy ca.crt, {cert} and {key} to its machine, and run there:", "", f"  {command}"]
