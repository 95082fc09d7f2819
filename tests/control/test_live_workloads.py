"""Three of the benchmark's seeded workloads with real processes; how recordings are kept, replayed and summed up."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from benchmarks.live_recordings import (
    DEVICES,
    Costs,
    RecordedJob,
    Recording,
    append_recording,
    believe,
    decide_on_beliefs,
    find_usual,
    measure_costs,
    read_recordings,
    replay_recording,
    tell_apart,
)
from benchmarks.live_workloads import OUTSIDE_LOAD, Result, judge, make_document, run_all

from springtide.control.scheduling.live_world import LiveWorld
from springtide.control.storage.records import EventRecord, SpeedRecord
from springtide.core.curves import Curve
from springtide.core.devices import Cluster, NodeGroup

QUIET = Result(0, 5, 4, 3, 3, 0, 0, 3, 2, 0.02, 20.0)
LOADED = replace(QUIET, seed=1, met=2, late=1, simulated_met=3, outside_load=0.4)
SPEED = SpeedRecord("k", {1: (500, 10.0), 2: (500, 18.0)}, 0.5, 0.1, 60, 60, 2, "cpu", True)
JOB = RecordedJob("a", 1000.0, 1020.0, 60, SPEED, SPEED, "succeeded", "finished", True, True, False, 0)
RECORDING = Recording(0, {}, (JOB,), 0.02, 20.0)


@pytest.mark.slow
def test_no_admitted_job_is_late_or_lost(tmp_path: Path) -> None:
    results = [judge(recording) for recording in run_all(tmp_path, [0, 1, 2])]
    assert [result.seed for result in results] == [0, 1, 2]
    for result in results:
        assert result.lost == 0
        assert result.late == 0 or result.outside_load > OUTSIDE_LOAD


def test_a_run_goes_on_where_it_ended_even_if_a_line_was_cut_short(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    assert read_recordings(kept, range(9)) == []
    for recording in (RECORDING, replace(RECORDING, seed=70)):
        append_recording(kept, recording)
    kept.write_text(kept.read_text() + json.dumps(asdict(RECORDING))[:20])
    assert read_recordings(kept, range(9)) == [RECORDING]


def test_a_replay_meets_what_can_be_met_and_says_where_it_differs() -> None:
    late = replace(JOB, id="b", deadline_s=1002.0, state="declined", why="too late", promised=False, met=False)
    recording = replace(RECORDING, jobs=(JOB, late))
    met = replay_recording(recording)
    assert met == {"a"}
    assert tell_apart(recording, met) == []
    (line,) = tell_apart(replace(recording, jobs=(replace(JOB, met=False, state="declined"), late)), met)
    assert "job 1" in line and "declined live" in line


def test_costs_are_what_the_steps_do_not_explain() -> None:
    """One second to start, half a second from the last step to the end, and a growth in force after two seconds."""
    curve = Curve((1, 2), (10.0, 20.0))
    alone = [
        EventRecord(100.0, "placed", "", data={"to": 1}),
        EventRecord(101.0, "started", "", data={"share": 1, "step": 0}),
    ]
    assert measure_costs([*alone, EventRecord(107.5, "succeeded", "")], curve, 60) == Costs(1.5, None)
    grown = [
        *alone,
        EventRecord(103.0, "grows", "", data={"to": 2}),
        EventRecord(105.0, "resized", "", data={"share": 2, "step": 40, "pause_s": 0.0}),
        EventRecord(106.5, "succeeded", ""),
    ]
    assert measure_costs(grown, curve, 60) == Costs(1.5, 1.0)
    assert measure_costs([*alone, EventRecord(103.0, "cancelled", "")], curve, 60) == Costs()


def test_jobs_that_never_ran_cost_what_others_did() -> None:
    slow = replace(JOB, costs=Costs(4.0, 1.0))
    declined = replace(JOB, id="b", met=False)
    assert find_usual(replace(RECORDING, jobs=(slow, declined))) == Costs(4.0, 1.0)
    assert find_usual(RECORDING) == Costs()


def test_the_policy_of_a_replay_remembers_what_it_remembered() -> None:
    past = [[900.0, 4.0, 3.0], [950.0, 4.0, 3.0]]
    world = LiveWorld(Cluster((NodeGroup(1, DEVICES, "cpu"),)))
    job = believe(JOB, 0)
    world.arrive(job, JOB.submitted_s)
    decision = decide_on_beliefs({job.id: job}, {"arrivals": past}, JOB.submitted_s, world.snapshot())
    assert decision.memory is not None
    assert decision.memory["arrivals"][:2] == past and len(decision.memory["arrivals"]) == 3


def test_loaded_workloads_are_pooled_apart() -> None:
    pooled = make_document([QUIET, LOADED])["pooled"]
    assert (pooled["quiet"]["late"], pooled["loaded"]["late"], pooled["all"]["late"]) == (0, 1, 1)
    assert (pooled["quiet"]["live_dsr"], pooled["quiet"]["apart_points"]) == (0.75, 0.0)
    assert pooled["loaded"]["apart_points"] == 25.0
