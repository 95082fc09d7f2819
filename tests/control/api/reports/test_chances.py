"""The probability of a promise: from the speed's interval and the time that is left."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.api.reports.chances import (
    NO_FAULTS,
    FaultHistory,
    judge_promise,
    measure_spread,
    read_history,
    tell_chance,
)
from springtide.control.scheduling.speeds import MEASURED_MARGIN, UNSEEN_EPOCH_MARGIN
from springtide.control.storage.records import JobLedgerEntry, JobRecord, SpeedRecord
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob

KNOWN = SpeedRecord("code", {1: (500, 10.0)}, logical_workers=1, whole_epoch=True)
NEW = replace(KNOWN, whole_epoch=False)
LONG = FakeJob(total_steps=4000, speeds={1: 10.0, 2: 18.0})


@pytest.fixture
def promised(tmp_path: Path) -> JobRecord:
    server = HandClockServer(tmp_path, scripts={"long": LONG})
    job = server.submit(run="python train.py long", deadline="30m")
    server.pass_s(40)
    record = server.job(job.id)
    assert record.promised and record.predicted_s is not None
    chance = judge_promise(record, server.store.speeds(record.speed_key), server.reconciler.now_s)
    assert chance is not None and chance > 0.95, "a promise counts on the slow end of the interval"
    return replace(record, devices=("cpu:0",))


def judge(record: JobRecord, expected_s: float, left_s: float, speed: SpeedRecord = KNOWN) -> float:
    chance = judge_promise(replace(record, predicted_s=expected_s, deadline_s=left_s), [speed], 0.0)
    assert chance is not None
    return chance


def test_a_job_that_needs_all_the_margin_is_kept_nineteen_times_in_twenty(promised: JobRecord) -> None:
    assert judge(promised, 100.0, 100.0 * MEASURED_MARGIN) == pytest.approx(0.95)
    assert judge(promised, 100.0, 100.0) == pytest.approx(0.5)
    assert judge(promised, 100.0, 200.0) > 0.999
    assert judge(promised, 100.0, 80.0) < 0.01
    assert judge(promised, -1.0, 10.0) == 1.0


def test_time_that_was_never_seen_makes_it_less_sure(promised: JobRecord) -> None:
    assert measure_spread(NEW, 1) > measure_spread(KNOWN, 1)
    assert judge(promised, 100.0, 110.0, NEW) < judge(promised, 100.0, 110.0)
    assert judge(promised, 100.0, 100.0 * UNSEEN_EPOCH_MARGIN * MEASURED_MARGIN, NEW) > 0.95


def test_nothing_is_said_where_nothing_is_promised_or_known(promised: JobRecord) -> None:
    now_s = promised.submitted_s
    for one in (replace(promised, promised=False), replace(promised, predicted_s=None), replace(promised, missed="x")):
        assert judge_promise(one, [KNOWN], now_s) is None
    assert judge_promise(promised, [SpeedRecord("code")], now_s) is None
    assert judge_promise(promised, [KNOWN], (promised.deadline_s or 0.0) + 1.0) is None


def test_faults_that_were_seen_count_as_often_as_they_came(promised: JobRecord) -> None:
    record = replace(promised, predicted_s=10_000.0, deadline_s=10_400.0)
    calm, failing = (FaultHistory(faults, 1e6) for faults in (0, 100))
    chances = [judge_promise(record, [KNOWN], 0.0, history=history) for history in (NO_FAULTS, calm, failing)]
    assert chances[0] == chances[1] and (chances[2] or 1.0) < (chances[0] or 0.0)
    ample = judge_promise(replace(record, deadline_s=20_000.0), [KNOWN], 0.0, history=failing)
    assert ample == pytest.approx(1.0, abs=1e-6), "time enough for faults"


def test_faults_of_scripts_that_failed_are_not_the_machines() -> None:
    def entry(state: JobState, faults: int, finished_s: float | None = 1.0) -> JobLedgerEntry:
        return JobLedgerEntry("ann", state, True, "", 100.0, 0, finished_s, 0.0, None, 0.0, faults)

    jobs = [entry(JobState.SUCCEEDED, 1), entry(JobState.FAILED, 5), entry(JobState.RUNNING, 2, None)]
    assert read_history(jobs) == FaultHistory(3, 200.0)


def test_it_is_told_without_false_precision() -> None:
    assert [tell_chance(chance) for chance in (0.999, 0.953, 0.004)] == [
        "more than 99 %",
        "about 95 %",
        "less than 1 %",
    ]
