from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from springtide.policies.common.gangs import Gang
from springtide.policies.research.configurations import PricedGang, choose_cheapest

TYPES = ("fast", "slow")
OPTIONS = st.lists(
    st.builds(
        PricedGang, st.builds(Gang, st.sampled_from(TYPES), st.sampled_from([1, 2, 4])), st.floats(0, 3).map(round)
    ),
    max_size=3,
)


def total(choices: list[list[PricedGang]], idle: list[float], picked: tuple[PricedGang | None, ...]) -> float:
    return sum(idle[row] if one is None else one.cost for row, one in enumerate(picked))


def fits(picked: tuple[PricedGang | None, ...], totals: dict[str, int]) -> bool:
    return all(
        sum(one.gang.share for one in picked if one is not None and one.gang.device_type == name) <= devices
        for name, devices in totals.items()
    )


@given(st.lists(OPTIONS, min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 4))
def test_the_choice_on_two_types_is_the_cheapest_that_fits(
    choices: list[list[PricedGang]], fast: int, slow: int
) -> None:
    totals, idle = {"fast": fast, "slow": slow}, [2.0] * len(choices)
    found = choose_cheapest(choices, idle, totals)
    assert all(gang is None or gang in [one.gang for one in row] for gang, row in zip(found, choices, strict=True))
    cost = sum(
        idle[row] if gang is None else min(one.cost for one in choices[row] if one.gang == gang)
        for row, gang in enumerate(found)
    )
    every = product(*[[None, *row] for row in choices])
    best = min(total(choices, idle, picked) for picked in every if fits(picked, totals))
    assert abs(cost - best) < 1e-6
