import pytest

from springtide.client.job_folders import load_job
from springtide.core.job_file_parts.job_settings import JobSettings
from springtide.errors import JobError

FILE = {"run": "python train.py", "deadline": "6h", "env": {"LR": "1"}, "checkpoint": {"every": "5m"}}


def test_any_key_is_changed_where_it_is_submitted() -> None:
    keys = ["deadline=2h", "checkpoint.keep=5", "devices=[1, 2]", "labels.team=vision", "notify=[{email: a@b}]"]
    job = load_job(FILE, JobSettings(keys, ["LR=0.1", "URL=http://x?a=b"])).job
    assert (job.deadline, job.checkpoint.keep, job.devices) == ("2h", 5, [1, 2])
    assert job.env == {"LR": "0.1", "URL": "http://x?a=b"} and job.labels == {"team": "vision"}
    assert job.notify[0].email == "a@b"
    assert load_job(FILE, JobSettings(["deadline=null"])).job.deadline is None


@pytest.mark.parametrize(
    ("keys", "env", "message"),
    [
        (["deadline"], [], "--set 'deadline' must be KEY=VALUE"),
        (["deadlin=2h"], [], "unknown key 'deadlin'; did you mean 'deadline'?"),
        (["deadline=soon"], [], "deadline 'soon' is not a span"),
        (["run.a=1"], [], "run is not a mapping"),
        (["devices=[1"], [], "--set devices is not YAML"),
        ([], ["LR"], "--env 'LR' must be NAME=VALUE"),
        ([], ["LD_PRELOAD=x"], "LD_PRELOAD is reserved"),
    ],
)
def test_what_cannot_be_set_is_said(keys: list[str], env: list[str], message: str) -> None:
    with pytest.raises(JobError) as error:
        load_job(FILE, JobSettings(keys, env))
    assert message in str(error.value)
