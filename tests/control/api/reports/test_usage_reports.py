"""Sums of usage: exact for any span, whoever they are added up by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.control.api.reports.usage_reports import UsageGroup, add_up, clip, list_running
from springtide.control.storage.records import JobRecord, UsageRecord
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState

NAMES = st.sampled_from(["ann", "bob", ""])
STRETCHES = st.builds(
    lambda job, user, project, start_s, span_s, share: UsageRecord(
        job, user, user, project, start_s, start_s + span_s, share * span_s, share * span_s / 100
    ),
    st.sampled_from(["a", "b", "c"]),
    NAMES,
    NAMES,
    st.floats(0, 1000),
    st.floats(1, 1000),
    st.integers(1, 8),
)


@given(st.lists(STRETCHES), st.floats(0, 2000), st.sampled_from(UsageGroup))
def test_every_stretch_counts_once_and_by_its_part_after_the_instant(
    used: list[UsageRecord], since_s: float, group: UsageGroup
) -> None:
    lines = add_up(group, [one for one in used if one.end_s > since_s], [], since_s, True)
    wanted = sum(
        one.device_s * (one.end_s - max(one.start_s, since_s)) / (one.end_s - one.start_s)
        for one in used
        if one.end_s > since_s
    )
    assert sum(line["device_h"] for line in lines) * 3600 == pytest.approx(wanted, rel=1e-3, abs=2)
    assert all(0 <= clip(one, since_s) <= 1 for one in used)


def test_what_runs_now_is_counted_and_promises_by_their_end() -> None:
    running = JobRecord("a", "one", "ann", JobState.RUNNING, JobFile(run="x"), 0.0, devices=("cpu:0", "cpu:1"))
    kept = JobRecord("b", "two", "ann", JobState.SUCCEEDED, JobFile(run="x"), 0.0, promised=True, finished_s=50.0)
    missed = JobRecord(
        "c", "three", "bob", JobState.FAILED, JobFile(run="x"), 0.0, promised=True, missed="faults", finished_s=60.0
    )
    (now,) = list_running([running, kept], 3600.0)
    assert (now.device_s, now.usd) == (7200.0, 0.0)
    lines = {line["name"]: line for line in add_up(UsageGroup.USER, [now], [running, kept, missed], 0.0, False)}
    assert lines["ann"] == {"name": "ann", "device_h": 2.0, "usd": None, "kept": 1, "missed": 0}
    assert (lines["bob"]["kept"], lines["bob"]["missed"]) == (0, 1)
    assert add_up(UsageGroup.USER, [], [kept, missed], 55.0, False)[0]["name"] == "bob", (
        "what ended before is not counted"
    )
