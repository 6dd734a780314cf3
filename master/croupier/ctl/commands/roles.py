"""`croupier weights` and `croupier quota`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import (
    CHANGE,
    LOCAL,
    Change,
    DryRunFlag,
    ForceFlag,
    JsonFlag,
    JsonListFlag,
    MasterFlag,
    RoleName,
)
from croupier.ctl.app import family

weights = family(
    "weights",
    "List or change the weights of roles: a role of weight 2 gets twice the share of one of 1.",
)
quota = family(
    "quota",
    "List or change the guarantees and limits of roles.\n\n"
    "Both apply to the role with all roles below it.",
)


@weights.command(name="list")
@weights.default
def weights_list(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List the weights of all roles."""
    from croupier.ctl.lists import ROLES, Form, print_list
    from croupier.ctl.views.role import WEIGHTS

    print_list(master, ROLES, WEIGHTS, form=Form(as_json))


@weights.command(name="get")
def weights_get(
    role: RoleName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Show the weight of one role."""
    from croupier.ctl.role_change import show_role
    from croupier.ctl.views.role import WEIGHTS

    show_role(master, role, WEIGHTS, as_json=as_json)


@weights.command(name="set")
def weights_set(
    role: RoleName,
    weight: str,
    /,
    *,
    resource: Annotated[list[str] | None, Parameter(negative="")] = None,
    dry_run: DryRunFlag = False,
    force: ForceFlag = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Set the weight of a role.

    It takes effect at once, and lasts until it is changed.

    Parameters
    ----------
    weight
        A number above 0, at most 1,000,000; may be a fraction, such as 0.5.
    resource
        NAME=WEIGHT: multiplies the weight for that resource; may be repeated. The given resource
        weights replace all earlier ones. Without this flag the earlier ones stay.
    """
    from croupier.ctl.role_change import change_role, weight_change

    wanted = weight_change(role, weight, resource or ())
    change_role(wanted, Change(dry_run, master, as_json), force=force)


@weights.command(name="remove")
def weights_remove(
    role: RoleName,
    /,
    *,
    change: Change = CHANGE,
) -> None:
    """Reset the weight of a role to the master's configuration, which is 1 by default."""
    from croupier.ctl.role_change import change_role, weight_removal

    change_role(weight_removal(role), change)


@quota.command(name="list")
@quota.default
def quota_list(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List the roles that have a guarantee, a limit or a preemption setting."""
    from croupier.ctl.lists import ROLES, Form, print_list
    from croupier.ctl.views.role import QUOTAS, has_quota

    print_list(master, ROLES, QUOTAS, form=Form(as_json), keep=has_quota)


@quota.command(name="get")
def quota_get(role: RoleName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show the guarantee, the limit and the preemption setting of one role."""
    from croupier.ctl.role_change import show_role
    from croupier.ctl.views.role import QUOTAS

    show_role(master, role, QUOTAS, as_json=as_json)


@quota.command(name="set")
def quota_set(
    role: RoleName,
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
    """Set the guarantee, the limit or the preemption setting of a role.

    The change takes effect at once, and lasts until the next. Settings that are not named keep
    their value.

    Parameters
    ----------
    guarantee
        Amounts such as 'cpus:4;mem:8GB': a role that uses less is served first. '' removes the
        guarantee.
    limit
        Amounts such as 'cpus:4;mem:8GB': the role never uses more. 0 is a limit; '' removes the
        limit.
    preemption
        on, off (the role neither preempts nor is preempted), or inherit (as its parent).
    """
    from croupier.ctl.role_change import change_role, quota_change

    wanted = quota_change(role, guarantee, limit, preemption)
    change_role(wanted, Change(dry_run, master, as_json), force=force)


@quota.command(name="remove")
def quota_remove(
    role: RoleName,
    /,
    *,
    change: Change = CHANGE,
) -> None:
    """Remove the guarantee, the limit and the preemption setting of a role."""
    from croupier.ctl.role_change import change_role, quota_removal

    change_role(quota_removal(role), change)
