"""`croupier cert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import CHANGE, LOCAL, Change, JsonFlag, JsonListFlag, MasterFlag
from croupier.ctl.app import family
from croupier.process.cli import read_by

cert = family(
    "cert",
    "Make, show and revoke certificates: a private authority, and certificates that it signs.\n\n"
    "For clusters without an authority of their own. DIR has ca.crt, which goes to every machine,"
    " and ca.key, which stays.",
)


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


DirFlag = Annotated[Path, Parameter(name="--dir", help="The directory of croupier cert init.")]
DaysFlag = Annotated[int, Parameter(name="--days", help="Days that the certificate is valid.")]
OverwriteFlag = Annotated[
    bool, Parameter(name="--force", negative="", help="Replace files that exist.")
]
AddressFlag = Annotated[
    tuple[str, ...],
    read_by(
        _hosts,
        name="--address",
        negative="",
        show_default=False,
        help="HOST[,HOST]: DNS names and IP addresses at which it listens.",
    ),
]
HERE = Path()
LEAF_DAYS = 30
CA_DAYS = 1825


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
    """Make a private authority in a directory.

    Parameters
    ----------
    directory
        Is made if it does not exist; for its owner only.
    cluster
        Name of the cluster, such as prod, in all certificates: lower-case letters, digits and '-'.
        Certificates of one cluster are refused in another.
    """
    from croupier.ctl.certificates import command

    command.init(directory, cluster, days, force=force, as_json=as_json)


@cert.command(name="master")
def master(
    name: str,
    /,
    *,
    address: AddressFlag,
    directory: DirFlag = HERE,
    days: DaysFlag = LEAF_DAYS,
    force: OverwriteFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Make the certificate of a master.

    Parameters
    ----------
    name
        Any name, such as m1; different for each master.
    """
    _issue("master", name, address, directory, days, force, as_json)


@cert.command(name="agent")
def agent(
    agent_id: str,
    /,
    *,
    address: AddressFlag = (),
    directory: DirFlag = HERE,
    days: DaysFlag = LEAF_DAYS,
    force: OverwriteFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Make the certificate of an agent.

    Agents can join with a token instead: croupier token create join.

    Parameters
    ----------
    agent_id
        The id that the agent registers with; different for each agent.
    """
    _issue("agent", agent_id, address, directory, days, force, as_json)


@cert.command(name="client")
def client(
    name: str,
    /,
    *,
    directory: DirFlag = HERE,
    days: DaysFlag = LEAF_DAYS,
    force: OverwriteFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Make the certificate of a person or a program, the principal client/NAME.

    client/admin is an administrator; others get permissions by croupier access.

    Parameters
    ----------
    name
        Such as alice, or ci.
    """
    _issue("client", name, (), directory, days, force, as_json)


@cert.command(name="etcd")
def etcd(
    name: str,
    /,
    *,
    address: AddressFlag,
    directory: DirFlag = HERE,
    days: DaysFlag = LEAF_DAYS,
    force: OverwriteFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Make the certificate of an etcd member. It is no principal of the cluster.

    Parameters
    ----------
    name
        Any name, such as e1.
    """
    _issue("etcd", name, address, directory, days, force, as_json)


@cert.command(name="renew")
def renew(
    *paths: Path,
    directory: Annotated[Path | None, Parameter(name="--dir")] = None,
    days: DaysFlag = LEAF_DAYS,
    within: Annotated[str, Parameter(show_default=False)] = "",
    as_json: JsonListFlag = False,
) -> None:
    """Renew certificates: the same names and key, a new validity.

    Only the certificate's file is replaced, so that it always matches its key.

    Parameters
    ----------
    paths
        Certificates, or the directory of croupier cert init for all in it.
    directory
        The directory of croupier cert init; the one of the certificate if not given.
    within
        Only those that expire within this time, such as 10d; for timers.
    """
    from croupier.ctl.certificates import command
    from croupier.model.durations import parse_duration

    within_s = parse_duration(within) if within else None
    command.renew(paths or (HERE,), directory, days, within_s, as_json=as_json)


@cert.command(name="rotate")
def rotate(
    directory: Path,
    /,
    *,
    finish: Annotated[bool, Parameter(negative="")] = False,
    days: DaysFlag = CA_DAYS,
    as_json: JsonFlag = False,
) -> None:
    """Replace an authority without an interruption.

    ca.crt has the new and the old authority until --finish. Daemons of Croupier read it again by
    themselves; members of etcd must be restarted, one by one, when ca.crt has changed, and before
    certificates are renewed: else no master can start. The command prints the steps.

    Parameters
    ----------
    directory
        The directory of croupier cert init.
    finish
        Remove the old authority, once all certificates are renewed and copied.
    """
    from croupier.ctl.certificates import command

    command.rotate(directory, days, finish=finish, as_json=as_json)


@cert.command(name="revoke")
def revoke(
    named: str,
    /,
    *,
    description: Annotated[str, Parameter(help="A note for the list.")] = "",
    change: Change = CHANGE,
) -> None:
    """Refuse the certificates of an agent or a client. Their open connections end at once.

    Revokes the key, which is the same in all renewals. A new certificate (--force) has a new key.

    Parameters
    ----------
    named
        A certificate (PEM), or the id of its key: cert show and the audit log show it.
    """
    from croupier.ctl.certificates import command

    command.revoke(named, description, change)


@cert.command(name="revoked")
def revoked(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List the revoked keys of certificates."""
    from croupier.ctl.policy import show_revoked

    show_revoked(master, as_json=as_json)


@cert.command(name="restore")
def restore(
    key: str,
    /,
    *,
    change: Change = CHANGE,
) -> None:
    """Accept the certificates with a revoked key again.

    Parameters
    ----------
    key
        The id of the key, as croupier cert revoked shows it.
    """
    from croupier.ctl.policy import restore_key

    restore_key(key, change)


@cert.command(name="show")
def show(*paths: Path, as_json: JsonListFlag = False) -> None:
    """Show certificates: names, uses, and days left.

    Parameters
    ----------
    paths
        Certificates (PEM), or directories with .crt files.
    """
    from croupier.ctl.certificates import command

    command.show(paths or (HERE,), as_json=as_json)


def _issue(
    kind: str,
    name: str,
    address: tuple[str, ...],
    directory: Path,
    days: int,
    force: bool,
    as_json: bool,
) -> None:
    from croupier.ctl.certificates.certificate import Leaf
    from croupier.ctl.certificates.command import issue

    issue(directory, Leaf(kind, name, address), days, force=force, as_json=as_json)
