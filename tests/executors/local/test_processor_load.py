"""What others take of a machine: from /proc's own text to a slowdown that is told once."""

import os
import time

import pytest

from springtide.executors.local import processor_load
from springtide.executors.local.processor_load import (
    BusyTimes,
    LoadMeter,
    ProcessorReading,
    add_trees,
    find_demand,
    find_slowdown,
    parse_busy,
    parse_process,
    read_processors,
)

STAT = """cpu  300 50 60 1000 20 0 10 30 0 0
cpu0 100 50 20 500 10 0 5 10 0 0
cpu1 200 0 40 500 10 0 5 20 0 0
intr 22596550 0 0
procs_running 4
"""


def read(at_s: float, here_s: float, own_s: float) -> ProcessorReading:
    return ProcessorReading(at_s, BusyTimes(here_s, here_s, 2), {7: own_s})


def test_busy_time_is_that_of_the_processors_we_may_use_and_niced_processes_give_way() -> None:
    busy = parse_busy(STAT, {0}, 100)
    assert busy.here_s == pytest.approx(1.35), "user, system, interrupts and stolen time of the first processor"
    assert busy.everywhere_s == pytest.approx(4.5) and busy.processors == 2


def test_a_process_is_read_whatever_its_name_holds() -> None:
    line = "17 (a) R 9 (b) S 4 17 17 0 -1 4194560 1 2 3 4 100 20 30 4 20 0 1 0 5 6 7"
    assert parse_process(line) == (4, 154), "its own ticks and those of children that have ended"


def test_a_tree_within_another_counts_for_itself() -> None:
    processes = {1: (0, 1000), 7: (1, 1), 8: (7, 2), 9: (8, 4), 20: (7, 8), 21: (20, 16)}
    assert add_trees(processes, {7, 20, 99}) == {7: 7, 20: 24}


@pytest.mark.parametrize(
    ("own", "used", "wanting", "demand"),
    [
        (0.0, 0.0, 0.0, 0.0),
        (1.0, 0.5, 1.5, 0.5),
        (0.0, 2.0, 2.0, 2.0),
        (1.0, 1.0, 4.0, 2.0),  # two of theirs and two of ours on two processors
        (0.5, 1.5, 8.0, 6.0),  # six of theirs and two of ours
        (0.0, 2.0, 6.0, 6.0),  # six of theirs alone
    ],
)
def test_others_want_as_much_more_than_they_get_as_all_do(
    own: float, used: float, wanting: float, demand: float
) -> None:
    before, after = read(0.0, 0.0, 100.0), read(10.0, 10 * (own + used), 100 + 10 * own)
    assert find_demand(before, after, wanting) == pytest.approx(demand)


def test_a_process_of_ours_that_came_meanwhile_tells_nothing() -> None:
    before, after = read(0.0, 0.0, 5.0), ProcessorReading(10.0, BusyTimes(10.0, 10.0, 2), {7: 10.0, 8: 900.0})
    assert find_demand(before, after, 1.0) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("devices", "cores", "outside", "slowdown"),
    [(2, 2, 0, 1), (2, 2, 2, 2), (2, 2, 6, 4), (4, 2, 2, 1.5), (8, 64, 50, 1), (8, 64, 120, 2), (1, 4, 2, 1)],
)
def test_all_threads_are_served_alike(devices: int, cores: int, outside: float, slowdown: float) -> None:
    assert find_slowdown(devices, cores, outside) == pytest.approx(slowdown)


def test_a_burst_is_no_load_and_a_load_is_told_once_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_load, "count_cores", lambda: 2)
    meter = LoadMeter(2, lambda: [os.getpid()])
    told = [meter.judge(demand) for demand in (0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0)]
    assert [load.slowdown for load in told if load is not None] == [1.0], "told once, that there is none"
    told = [meter.judge(demand) for demand in (2.0, 2.0, 2.0, 0.0, 2.0, 2.0)]
    assert [load and load.slowdown for load in told] == [None, 2.0, None, None, None, None]
    told = [meter.judge(0.0) for _ in range(6)]
    assert [load and load.slowdown for load in told] == [None, None, None, None, 1.0, None]


def test_what_this_process_burns_is_its_own() -> None:
    before = read_processors([os.getpid()])
    assert before is not None, "this is Linux"
    until_s = time.process_time() + 0.5
    while time.process_time() < until_s:
        pass
    after = read_processors([os.getpid()])
    assert after is not None
    burnt_s = after.use_since(before) * (after.at_s - before.at_s)
    assert 0.4 <= burnt_s <= after.busy.here_s - before.busy.here_s + 0.1
