"""The commands of `croupier cert`: make files, and print what to do with them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from croupier.cli.flags import Change
from croupier.cli.terminal import print_lines
from croupier.ctl.certificates.certificate import Leaf, utc_now
from croupier.ctl.certificates.directory import AuthorityDirectory, CertificateFiles
from croupier.ctl.certificates.view import certificate_lines, certificate_view, certificate_views
from croupier.ctl.operation import print_result
from croupier.ctl.policy import revoke_key
from croupier.model.access import KEY_DIGITS
from croupier.model.errors import Conflict, InvalidRequest
from croupier.net.certificate import read_certificates


def init(directory: Path, cluster: str, days: int, *, force: bool, as_json: bool) -> None:
    """Make an authority; raises as `AuthorityDirectory.init`."""
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


def issue(directory: Path, leaf: Leaf, days: int, *, force: bool, as_json: bool) -> None:
    """Sign a certificate; raises as `AuthorityDirectory.issue`."""
    made = AuthorityDirectory(directory).issue(leaf, days, utc_now(), force=force)
    expires = f"{made.certificate.not_valid_after_utc:%Y-%m-%d}"
    _print(
        made,
        f"{made.cert}  certificate, valid for {days} days, until {expires}",
        f"{made.key}  its private key: keep it secret",
        "",
        *_next_lines(leaf, made),
        "",
        f"Renew it in time: croupier cert renew {made.cert} --dir {directory}",
        as_json=as_json,
    )


def renew(
    paths: Sequence[Path],
    directory: Path | None,
    days: int,
    within_s: float | None,
    *,
    as_json: bool,
) -> None:
    """Renew certificates, or all in a directory; raises as `AuthorityDirectory.renew`.

    With `within_s` only those that expire within so many seconds.

    Raises:
        Conflict: with `within_s`, if a rotation is not finished: members of etcd may refuse what
            the new authority signs.
    """
    renewed, now = [], utc_now()
    for path in paths:
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
    if as_json:
        print(json.dumps([_view(made) for made in renewed], indent=2))
        return
    for made in renewed:
        until = f"{made.certificate.not_valid_after_utc:%Y-%m-%d}"
        print_lines(f"{made.cert}  renewed until {until}; its key is the same")
    if not renewed:
        print_lines("no certificate needs to be renewed")
        return
    print_lines("", "Copy each to its machine. Daemons read a replaced file again by themselves.")


def rotate(directory: Path, days: int, *, finish: bool, as_json: bool) -> None:
    """Begin or finish the rotation of an authority; raises as `AuthorityDirectory.rotate`."""
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


def revoke(named: str, description: str, change: Change) -> None:
    """Revoke the key of the certificate in a file, or the key of this id.

    Raises:
        InvalidRequest: if the file has no certificate of an agent or a client.
        CroupierError: as `grant`.
    """
    key_id = named
    if not re.fullmatch(rf"[0-9a-f]{{{KEY_DIGITS}}}", named):
        found = read_certificates(Path(named))[0]
        kind = found.identity.partition("/")[0]
        if kind not in ("agent", "client"):
            raise InvalidRequest(
                f"{named} is no certificate of an agent or a client; masters and etcd are told by"
                " their authority alone: replace it (croupier cert rotate, or cert init)"
            )
        key_id = found.key_id
        description = ": ".join(filter(None, (found.identity, description)))
    revoke_key(key_id, description, change)


def show(paths: Sequence[Path], *, as_json: bool) -> None:
    """Print certificates; raises as `certificate_views`."""
    views = [view for path in paths for view in certificate_views(path, utc_now())]
    if as_json:
        print(json.dumps(views, indent=2))
        return
    for view in views:
        print_lines(*certificate_lines(view))


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
