"""The metrics page by numbers, from records as a server leaves them."""

from pathlib import Path
from typing import Any

from springtide.control.api.platform.prometheus import write_metrics
from springtide.control.scheduling.machines.inventory import make_inventory
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import Condition, JobRecord, OfferRecord
from springtide.control.storage.store import Store
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState


def read_page(store: Store) -> dict[str, float]:
    """Every sample of the page."""
    page = write_metrics(store, make_inventory("cpu", ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]), 100.0)
    lines = [line for line in page.splitlines() if line and not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def make(number: int, state: JobState, **fields: Any) -> JobRecord:
    return JobRecord(f"id{number}", "job", "ann", state, JobFile(run="x"), 1.0, seq=number, **fields)


def test_an_empty_server_has_every_counter_at_zero(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'x.db'}")
    page = read_page(store)
    assert page["springtide_deadline_met_total"] == page["springtide_faults_total"] == 0
    assert page['springtide_device_utilisation_ratio{type="cpu"}'] == 0
    assert "springtide_deadline_slack_seconds" not in page, "nobody has any"
    store.close()


def test_what_became_of_jobs_is_counted(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'x.db'}")
    at_risk = Condition("at_risk", "slower_than_measured", "it is late", 90.0)
    jobs = [
        make(
            1,
            JobState.SUCCEEDED,
            promised=True,
            answered_s=10.0,
            expected_s=20.0,
            finished_s=25.0,
            rescales=2,
            pause_s=0.5,
        ),
        make(2, JobState.SUCCEEDED, promised=True, missed="faults", answered_s=10.0, expected_s=20.0, finished_s=19.0),
        make(3, JobState.FAILED, promised=True, finished_s=19.0, faults=3, lost_steps=40),
        make(4, JobState.SUCCEEDED, finished_s=19.0, rescales=1, pause_s=0.25),
        make(5, JobState.RUNNING, promised=True, deadline_s=150.0, predicted_s=140.0, devices=("cpu:0", "cpu:1")),
        make(6, JobState.RUNNING, promised=True, deadline_s=150.0, predicted_s=155.0, devices=("cpu:2",), faults=1),
        make(7, JobState.RUNNING, promised=True, missed="lost_capacity", conditions=(at_risk,)),
        make(8, JobState.DECLINED, finished_s=19.0),
    ]
    offers = [
        OfferRecord(str(number), "id8", "ann", "deadline", 9.0, 10, 2.0, state=state)
        for number, state in enumerate(("open", "accepted", "accepted", "expired"))
    ]
    store.write(Batch(jobs={job.id: job for job in jobs}, offers={offer.id: offer for offer in offers}))
    page = read_page(store)
    expected = {
        'springtide_jobs{state="succeeded"}': 3,
        'springtide_jobs{state="declined"}': 1,
        "springtide_deadline_met_total": 1,
        'springtide_deadline_missed_total{cause="faults"}': 1,
        'springtide_deadline_missed_total{cause="lost_capacity"}': 1,
        "springtide_deadline_slack_seconds": -5,
        "springtide_jobs_at_risk": 1,
        "springtide_prediction_error_ratio_count": 2,
        "springtide_prediction_error_ratio_sum": 0.6,
        "springtide_rescale_duration_seconds_count": 3,
        "springtide_rescale_duration_seconds_sum": 0.75,
        "springtide_faults_total": 4,
        "springtide_lost_work_steps_total": 40,
        'springtide_offers_total{outcome="accepted"}': 2,
        'springtide_offers_total{outcome="expired"}': 1,
        'springtide_devices_held{type="cpu"}': 3,
        'springtide_device_utilisation_ratio{type="cpu"}': 0.75,
    }
    assert {name: page[name] for name in expected} == expected
    store.close()
