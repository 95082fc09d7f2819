"""When a job is started again, and when it is given up."""

from springtide.executors.local.jobs.exit_causes import BACK_OFF_S, Restarts


def test_restarts_without_a_new_step_wait_longer_and_are_given_up() -> None:
    restarts = Restarts(best_step=5, limit=10)
    waits = []
    while not restarts.are_hopeless:
        waits.append(restarts.add(100.0) - 100.0)
        restarts.add_step(5)
    assert waits == [*BACK_OFF_S, BACK_OFF_S[-1], BACK_OFF_S[-1]]
    assert restarts.count == 10


def test_a_new_step_clears_the_account() -> None:
    restarts = Restarts(best_step=5, limit=2)
    restarts.add(0.0)
    restarts.add(0.0)
    assert restarts.are_hopeless
    restarts.add_step(6)
    assert not restarts.are_hopeless
    assert (restarts.count, restarts.best_step) == (2, 6)
