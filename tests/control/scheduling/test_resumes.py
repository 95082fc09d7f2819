"""Jobs that go on: from what is really on disk, with what they have behind them, and with their secrets."""

from pathlib import Path

import pytest
from tests.control.hand_clock import POLICY, HandClockServer

from springtide.control.scheduling import submissions
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.errors import JobError, UnavailableError
from springtide.executors.fake import FakeJob
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder
from springtide.policies import POLICIES

RUN = "python train.py long"
SCRIPTS = {"long": FakeJob(total_steps=400, speeds={1: 10.0, 2: 18.0})}


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, scripts=dict(SCRIPTS))


def submit(hand_server: HandClockServer, values: dict[str, str], **keys: object) -> JobRecord:
    job = check_job({"run": RUN, **keys}, "test")
    future = hand_server.reconciler.call(
        lambda: hand_server.operations.submit(Submission(job, hand_server.code(), "ann", values))
    )
    hand_server.reconciler.step()
    return hand_server.job(future.result(timeout=0))


def cancel(hand_server: HandClockServer, record: JobRecord) -> None:
    hand_server.reconciler.call(lambda: hand_server.operations.cancel(record.id, "ann"))
    hand_server.reconciler.step()


def resume(hand_server: HandClockServer, record: JobRecord, secrets: dict[str, str] | None = None) -> JobRecord:
    step = hand_server.find_step(record.id)
    future = hand_server.reconciler.call(lambda: hand_server.operations.resume(record.id, step, secrets))
    hand_server.reconciler.step()
    future.result(timeout=0)
    return hand_server.job(record.id)


def put_checkpoint(hand_server: HandClockServer, record: JobRecord, step: int) -> None:
    folder = hand_server.state_dir.checkpoints(record.id) / f"step-{step:09d}"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")


def test_a_promise_rests_on_the_steps_that_are_left(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run=RUN, deadline="1h", devices=1)
    hand_server.pass_s(40)
    used = hand_server.job(record.id)
    cancel(hand_server, record)
    put_checkpoint(hand_server, record, 300)
    resumed = resume(hand_server, record)
    assert (resumed.state, resumed.promised, resumed.step) == (JobState.ADMITTED, True, 300)
    assert resumed.expected_s is not None and used.expected_s is not None
    assert resumed.expected_s - hand_server.source.wall < 100 / 400 * (used.expected_s - used.submitted_s)
    assert hand_server.store.events(record.id)[-3].sentence == "goes on from step 300"


def test_what_was_removed_meanwhile_is_done_again(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run=RUN, devices=1)
    hand_server.pass_s(20)
    cancel(hand_server, record)
    assert hand_server.job(record.id).step > 0
    assert resume(hand_server, record).step == 0


def test_device_seconds_go_on_counting(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run=RUN, devices=1)
    hand_server.pass_s(20)
    cancel(hand_server, record)
    before = hand_server.job(record.id).served
    assert before >= 19
    resume(hand_server, record)
    hand_server.pass_s(60)
    ended = hand_server.job(record.id)
    assert ended.state is JobState.SUCCEEDED
    assert ended.served > before + 10


def test_a_budget_that_was_spent_counts_anew(tmp_path: Path) -> None:
    options = ServerOptions(policy=POLICY, price_per_device_hour=3600.0)
    hand_server = HandClockServer(tmp_path, scripts=dict(SCRIPTS), options=options)
    record = hand_server.submit(run=RUN, budget="10 USD", devices=1)
    hand_server.pass_s(20)
    assert hand_server.job(record.id).state is JobState.PAUSED
    resume(hand_server, record)
    hand_server.pass_s(5)
    assert hand_server.job(record.id).state is JobState.RUNNING
    hand_server.pass_s(10)
    assert (hand_server.job(record.id).state, hand_server.job(record.id).reason) == (JobState.PAUSED, "budget")


def test_a_deadline_that_has_passed_is_told(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run=RUN, deadline="1m", devices=1)
    cancel(hand_server, record)
    hand_server.pass_s(70)
    resumed = resume(hand_server, record)
    assert (resumed.state, resumed.deadline_s, resumed.promised) == (JobState.ADMITTED, None, False)
    told = next(event for event in hand_server.store.events(record.id) if event.kind == "resumed")
    assert told.sentence.endswith("its deadline has passed, so it is best effort now")


def test_secrets_are_needed_again_after_an_end(hand_server: HandClockServer) -> None:
    record = submit(hand_server, {"KEY": "hunter2"}, secrets=["KEY"])
    assert hand_server.state_dir.secrets_file(record.id).exists()
    cancel(hand_server, record)
    assert not hand_server.state_dir.secrets_file(record.id).exists()
    with pytest.raises(JobError, match="secret KEY has no value; set it in the environment you submit or resume from"):
        resume(hand_server, record)
    assert hand_server.job(record.id).state is JobState.CANCELLED
    assert resume(hand_server, record, {"KEY": "hunter3", "OTHER": "x"}).state is JobState.ADMITTED
    assert hand_server.state_dir.secrets_file(record.id).read_text() == '{"KEY": "hunter3"}'


def test_the_secrets_of_a_declined_job_go_when_its_offers_do(hand_server: HandClockServer) -> None:
    hand_server.submit(run=RUN, deadline="1h", devices=1)
    hand_server.pass_s(100)
    at_once = submit(hand_server, {"KEY": "hunter2"}, secrets=["KEY"], devices=3)
    assert at_once.state is JobState.DECLINED
    assert not hand_server.state_dir.secrets_file(at_once.id).exists()
    offered = submit(hand_server, {"KEY": "hunter2"}, secrets=["KEY"], deadline="2s", devices=1)
    assert offered.state is JobState.OFFERED
    assert hand_server.state_dir.secrets_file(offered.id).exists()
    hand_server.pass_s(120, by_s=5)
    assert hand_server.job(offered.id).state is JobState.DECLINED
    assert not hand_server.state_dir.secrets_file(offered.id).exists()


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_job_may_be_cancelled_before_any_policy_hears_of_it(tmp_path: Path, policy: str) -> None:
    hand_server = HandClockServer(tmp_path, options=ServerOptions(policy=policy))
    job, code = check_job({"run": RUN}, "test"), hand_server.code()
    ids: list[str] = []
    asked = [
        hand_server.reconciler.call(lambda: ids.append(hand_server.operations.submit(Submission(job, code, "ann")))),
        hand_server.reconciler.call(lambda: hand_server.operations.cancel(ids[0], "ann")),
    ]
    hand_server.reconciler.step()
    for future in asked:
        future.result(timeout=0)
    assert hand_server.job(ids[0]).state is JobState.CANCELLED


def test_the_checkpoint_is_looked_for_as_the_user_who_named_its_folder(
    hand_server: HandClockServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[str, str | None]] = []

    def look(folder: Path, user: str | None = None) -> CheckpointFolder:
        looked.append((str(folder), user))
        return CheckpointFolder(folder)

    monkeypatch.setattr(submissions, "CheckpointFolder", look)
    hand_server.store.put_user(UserRecord("ann", "hash", run_as="eve"))
    record = hand_server.submit(run=RUN, devices=1, checkpoint={"dir": str(tmp_path / "roots")})
    cancel(hand_server, record)
    resume(hand_server, record)
    assert looked == [(str(tmp_path / "roots"), "eve")]


@pytest.mark.parametrize(
    ("raised", "kind", "sentence"),
    [
        (TimeoutError(0, "it took too long"), UnavailableError, "did not answer in time; nothing was done"),
        (PermissionError(13, "Permission denied"), JobError, "cannot be read by the server: Permission denied"),
    ],
)
def test_a_folder_that_does_not_tell_is_not_taken_for_a_beginning(
    hand_server: HandClockServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: OSError,
    kind: type[Exception],
    sentence: str,
) -> None:
    def fail(_self: CheckpointFolder) -> None:
        raise raised

    record = hand_server.submit(run=RUN, devices=1, checkpoint={"dir": str(tmp_path / "gone")})
    hand_server.pass_s(20)
    cancel(hand_server, record)
    monkeypatch.setattr(CheckpointFolder, "find_newest", fail)
    with pytest.raises(kind, match=sentence):
        hand_server.find_step(record.id)
