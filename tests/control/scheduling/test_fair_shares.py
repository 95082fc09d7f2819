"""The parts that users have of what promises leave, as the owner of a server sets them; on hand-moved clocks."""

from collections import Counter
from pathlib import Path

from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.server_config import read_config
from springtide.control.storage.records import UserRecord
from springtide.control.storage.state_dir import StateDir
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob

SHORT = FakeJob(total_steps=100, speeds={1: 10.0}, startup_s=0.5)


def count_ended(folder: Path, options: ServerOptions) -> Counter[str]:
    """How many equal jobs of each of two users end on one device, while both have more of them."""
    server = HandClockServer(folder, devices=1, scripts={"short": SHORT}, options=options)
    jobs = [server.submit(run="python train.py short", user=user) for _ in range(8) for user in ("ann", "bob")]
    server.pass_s(60)
    server.restart()
    server.pass_s(60)
    ended = [server.job(job.id) for job in jobs]
    return Counter(job.user for job in ended if job.state is JobState.SUCCEEDED)


def count_of_projects(folder: Path, options: ServerOptions, project: str) -> Counter[str]:
    """The same of three users with as many jobs each, of whom ann and bob may be in a project."""
    server = HandClockServer(folder, devices=1, scripts={"short": SHORT}, options=options)
    for name in ("ann", "bob"):
        server.store.put_user(UserRecord(name, f"hash-{name}", project=project))
    server.store.put_user(UserRecord("eve", "hash-eve"))
    users = ("ann", "bob", "eve")
    jobs = [server.submit(run="python train.py short", user=user) for _ in range(12) for user in users]
    server.pass_s(180)
    ended = [server.job(job.id) for job in jobs]
    return Counter(job.user for job in ended if job.state is JobState.SUCCEEDED)


def test_the_users_of_a_project_share_as_one(tmp_path: Path) -> None:
    apart = count_of_projects(tmp_path / "apart", ServerOptions(), "")
    together = count_of_projects(tmp_path / "together", ServerOptions(), "vision")
    weighed = count_of_projects(tmp_path / "weighed", ServerOptions(weights={"vision": 4}), "vision")
    assert apart["ann"] + apart["bob"] >= 2 * apart["eve"] - 2
    assert abs(together["ann"] + together["bob"] - together["eve"]) <= 1, "each project has a part, however many it has"
    assert weighed["ann"] + weighed["bob"] >= 2 * weighed["eve"] > 0, "and may have more"


def test_a_user_of_more_weight_gets_more_of_what_is_shared(tmp_path: Path) -> None:
    home = StateDir(tmp_path)
    home.config.write_text("weights: {ann: 4}\n")
    alike = count_ended(tmp_path / "alike", ServerOptions())
    weighed = count_ended(tmp_path / "weighed", read_config(home, ServerOptions()))
    assert sum(alike.values()) == sum(weighed.values()), "the device is as busy"
    assert abs(alike["ann"] - alike["bob"]) <= 1
    assert weighed["ann"] >= 2 * weighed["bob"] > 0, "nobody is left out"
