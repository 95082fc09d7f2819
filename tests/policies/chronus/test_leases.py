from springtide.policies.chronus.leases import LeaseClaim, choose_first, fill_backwards


def claim(gang: int, leases: int, last: int, *, running: bool = False, stopped: int | None = None) -> LeaseClaim:
    return LeaseClaim(gang, leases, last, leases if stopped is None else stopped, running)


def test_packing_takes_the_last_usable_leases() -> None:
    assert fill_backwards([claim(4, 2, 3)], 4) == [False]
    assert fill_backwards([claim(4, 3, 3)], 4) == [True]


def test_larger_gangs_are_packed_first_and_the_rest_around_them() -> None:
    # leases 0..2 on 4 devices: the gang of 4 takes lease 2, the others the first two side by side
    assert fill_backwards([claim(2, 2, 3), claim(4, 1, 3), claim(2, 2, 2)], 4) == [True, False, True]


def test_what_cannot_be_packed_is_said() -> None:
    assert fill_backwards([claim(4, 2, 3), claim(4, 2, 3)], 4) is None
    assert fill_backwards([claim(4, 2, 1)], 4) is None
    assert fill_backwards([], 4) == []


def test_the_first_lease_is_filled_or_left() -> None:
    claims = [claim(2, 1, 5), claim(4, 1, 5), claim(2, 2, 3)]
    filled = choose_first(claims, 4, postpone=False)
    assert filled is not None
    assert sum(one.gang for one, holds in zip(claims, filled, strict=True) if holds) == 4
    assert choose_first(claims, 4, postpone=True) == [False, False, False]


def test_a_claim_that_cannot_wait_holds_the_first_lease() -> None:
    assert choose_first([claim(4, 1, 5), claim(4, 2, 2)], 4, postpone=False) == [False, True]
    assert choose_first([claim(4, 1, 5), claim(4, 2, 2)], 4, postpone=True) == [False, True]


def test_a_running_job_that_would_lose_its_slack_by_a_pause_is_not_stopped() -> None:
    waiting = claim(4, 1, 3)
    assert choose_first([claim(4, 2, 3, running=True, stopped=3), waiting], 4, postpone=False) == [True, False]


def test_the_most_claims_are_kept_when_not_all_can_be() -> None:
    assert choose_first([claim(4, 3, 3), claim(4, 1, 2), claim(4, 2, 3)], 4, postpone=False) != [True, False, False]


def test_a_running_job_is_kept_among_equals() -> None:
    assert choose_first([claim(4, 1, 4), claim(4, 1, 4, running=True)], 4, postpone=False) == [False, True]
