"""Hosts that answer and do not reach each other: two ends in a row take a job to one of them, time takes it back."""

from springtide.executors.local.jobs.host_cuts import FIRST_S, HostCut

BOTH = ("a/gpu:0", "b/gpu:0", "b/gpu:1")
ON_B = ("b/gpu:0", "b/gpu:1")


def test_two_ends_without_a_step_between_them_take_a_job_to_the_host_with_most_of_its_devices() -> None:
    cut = HostCut()
    assert cut.add_end(BOTH, True, 100.0) == "" and cut.confine(BOTH, 100.0) == BOTH
    assert "it goes on on b alone" in cut.add_end(BOTH, False, 200.0)
    assert cut.confine(BOTH, 200.0) == ON_B
    assert cut.confine(("a/gpu:0", "c/gpu:0"), 200.0) == ("a/gpu:0", "c/gpu:0"), "these two may reach each other"


def test_a_job_goes_back_after_a_while_and_away_at_the_first_end_for_twice_as_long() -> None:
    cut = HostCut()
    cut.add_end(BOTH, False, 0.0)
    cut.add_end(BOTH, False, 0.0)
    assert cut.confine(BOTH, FIRST_S - 1) == ON_B and cut.confine(BOTH, FIRST_S) == BOTH
    assert "after 20m" in cut.add_end(BOTH, True, FIRST_S + 60)
    assert cut.confine(BOTH, FIRST_S + 60) == ON_B
    assert cut.add_end(BOTH, True, 10 * FIRST_S) == "", "it has been well for long"


def test_ends_on_one_host_or_with_steps_between_them_take_nothing_away() -> None:
    cut = HostCut()
    for now_s in (0.0, 1.0, 2.0):
        assert cut.add_end(ON_B, False, now_s) == "" and cut.add_end(("cpu:0",), False, now_s) == ""
        assert cut.add_end(BOTH, True, now_s) == "" and cut.confine(BOTH, now_s) == BOTH
