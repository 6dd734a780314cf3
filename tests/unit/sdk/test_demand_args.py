"""Arguments of frameworks for roles and demands."""

from __future__ import annotations

import pytest

from croupier.model.resources import Resources
from croupier.sdk import Demand, Framework, InvalidRequest, Role, matches

UNIT = Resources.parse("cpus:1")
ILLEGAL = ["a/../b", "a//b", "/a", "a/", "-x", "", "a b", "x" * 2**20]


class TestRoles:
    def test_one_role_is_accepted(self) -> None:
        assert Framework().roles == ("*",)
        assert Framework(role="ads").roles == ("ads",)
        assert Framework("name", "ads").role == "ads"

    def test_several_are_given_in_order(self) -> None:
        framework = Framework(roles=["web", "ads/prod"])
        assert framework.roles == ("web", "ads/prod")
        assert framework.role == "web"

    @pytest.mark.parametrize("role", ILLEGAL)
    def test_illegal_ones_are_refused(self, role: str) -> None:
        with pytest.raises(InvalidRequest, match="role") as refused:
            Framework(roles=["ads", role])
        assert len(str(refused.value)) < 2000

    def test_invalid_arguments_are_refused(self) -> None:
        with pytest.raises(InvalidRequest, match="'ads' is given twice"):
            Framework(roles=["ads", "web", "ads"])
        with pytest.raises(InvalidRequest, match="at least one"):
            Framework(roles=[])
        with pytest.raises(InvalidRequest, match="not both"):
            Framework(role="ads", roles=["web"])
        with pytest.raises(InvalidRequest, match="list"):
            Framework(roles="ads")


class TestDemands:
    def test_several_are_given_with_their_roles(self) -> None:
        Framework(
            roles=["ads", "web"],
            demands=[
                Demand(UNIT, 3, (matches("hostname", r"node-\d+"),)),
                Demand(UNIT, 3, min_per_offer=2, max_per_offer=4, role=Role("web")),
            ],
        )

    def test_invalid_arguments_are_refused(self) -> None:
        with pytest.raises(InvalidRequest, match="not both"):
            Framework(demand=UNIT, demands=[Demand(UNIT)])
        with pytest.raises(InvalidRequest, match="twice"):
            Framework(demands=[Demand(UNIT), Demand(UNIT, 3)])
        with pytest.raises(InvalidRequest, match="the framework does not have"):
            Framework(role="ads", demands=[Demand(UNIT, role=Role("web"))])
        with pytest.raises(InvalidRequest, match="100 constraints"):
            Framework(demand=UNIT, constraints=[matches("rack", "r.")] * 10_000)

    async def test_demands_are_checked_before_they_are_sent(self) -> None:
        framework = Framework(roles=["ads", "web"])
        with pytest.raises(InvalidRequest, match="the framework does not have"):
            await framework.demands([Demand(UNIT, role=Role("dev"))])
        with pytest.raises(InvalidRequest, match="not one of"):
            await framework.suppress("dev")
        with pytest.raises(InvalidRequest, match="not one of"):
            await framework.revive("ads", "dev")
