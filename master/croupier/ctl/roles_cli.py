"""`croupier weights` and `croupier quota`: flags and help; the work is in `role_change`.

Rule: what a command needs is imported within it, so that `--help` stays fast.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.ctl.target import LOCAL, MasterFlag
from croupier.process.cli import make_app

JsonFlag = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for programs.")]
DryRunFlag = Annotated[
    bool, Parameter(name="--dry-run", negative="", help="Change nothing; say what would be.")
]
ForceFlag = Annotated[
    bool,
    Parameter(
        name="--force",
        negative="",
        help="Accept what the cluster as it stands contradicts: a limit below what tasks use,"
        " a guarantee of more than there is, a resource that no agent has.",
    ),
]

weights = make_app(
    "weights",
    "List or change the weights of roles: a role of weight 2 gets twice the share of one of 1.",
    reads_environment=False,
)
quota = make_app(
    "quota",
    "List or change what roles are guaranteed and limited to.\n\n"
    "Both count the role with all roles within it.",
    reads_environment=False,
)


@weights.command(name="list")
@weights.default
def weights_list(*, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """List the weights of all roles."""
    from croupier.ctl.role_listing import list_weights

    list_weights(master, as_json=as_json)


@weights.command(name="get")
def weights_get(role: str, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show the weight of one role."""
    from croupier.ctl.role_listing import show_weight

    show_weight(master, role, as_json=as_json)


@weights.command(name="set")
def weights_set(
    role: str,
    weight: str,
    /,
    *,
    resource: Annotated[list[str] | None, Parameter(negative="")] = None,
    dry_run: DryRunFlag = False,
    force: ForceFlag = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Set the weight of a role, at once and until it is changed again.

    Parameters
    ----------
    role
        Such as ads or ads/prod.
    weight
        Above 0, at most 1,000,000; may be a fraction, such as 0.5.
    resource
        NAME=WEIGHT, by which the weight is multiplied for that resource; may be repeated.
        All that were set before are replaced; if none is given they stay.
    """
    from croupier.ctl.role_change import Manner, change_role, weight_change

    change = weight_change(role, weight, resource or ())
    change_role(master, change, Manner(dry_run, force, as_json))


@weights.command(name="remove")
def weights_remove(
    role: str,
    /,
    *,
    dry_run: DryRunFlag = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Give a role the weight again that the master was started with: 1 unless it says otherwise."""
    from croupier.ctl.role_change import Manner, change_role, weight_removal

    change_role(master, weight_removal(role), Manner(dry_run, as_json=as_json))


@quota.command(name="list")
@quota.default
def quota_list(*, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """List the roles that have a guarantee, a limit or a preemption setting."""
    from croupier.ctl.role_listing import list_quotas

    list_quotas(master, as_json=as_json)


@quota.command(name="get")
def quota_get(role: str, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show what one role is guaranteed and limited to."""
    from croupier.ctl.role_listing import show_quota

    show_quota(master, role, as_json=as_json)


@quota.command(name="set")
def quota_set(
    role: str,
    /,
    *,
    guarantee: str | None = None,
    limit: str | None = None,
    preemption: str | None = None,
    dry_run: DryRunFlag = False,
    force: ForceFlag = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Set what a role is guaranteed or limited to, at once and until it is changed again.

    What is not given stays as it is.

    Parameters
    ----------
    role
        Such as ads or ads/prod.
    guarantee
        Such as 'cpus:4;mem:8GB': while the role holds less, it is dealt before others; '' for
        none.
    limit
        Such as 'cpus:4;mem:8GB': the role never holds more; 0 is a limit, and '' is none.
    preemption
        on, off (the role neither preempts nor is preempted), or inherit: as its parent.
    """
    from croupier.ctl.role_change import Manner, change_role, quota_change

    change = quota_change(role, guarantee, limit, preemption)
    change_role(master, change, Manner(dry_run, force, as_json))


@quota.command(name="remove")
def quota_remove(
    role: str,
    /,
    *,
    dry_run: DryRunFlag = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Take the guarantee, the limit and the preemption setting of a role away."""
    from croupier.ctl.role_change import Manner, change_role, quota_removal

    change_role(master, quota_removal(role), Manner(dry_run, as_json=as_json))
