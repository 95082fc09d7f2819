"""Jobs made of functions: their folder, their command, and which functions can be none."""

import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from tests.control.http_servers import connect, run_server

from springtide.client.function_jobs import job_from
from springtide.errors import JobError


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    folder = tmp_path / "work" / "models_of_mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "digits.py").write_text("def train_digits():\n    pass\n")
    monkeypatch.syspath_prepend(folder.parent)
    found: Callable[[], object] = import_module("models_of_mine.digits").train_digits
    return found


def test_the_folder_goes_along_and_the_job_calls_the_function(train: Callable[[], object], tmp_path: Path) -> None:
    made = job_from(train, deadline="10m", env={"LR": "0.1"})
    assert made.workdir == (tmp_path / "work").resolve() and made.job.name == "train-digits"
    assert made.job.words[1:] == ("-c", "from models_of_mine.digits import train_digits; train_digits()")
    with run_server(tmp_path) as server, connect(server) as client:
        assert client.plan(made).sentence
        assert client.wait(client.submit(made)).state == "succeeded"


def test_what_a_job_could_not_import_is_refused_with_the_remedy(train: Callable[[], object]) -> None:
    for function in (lambda: None, math.factorial):
        with pytest.raises(JobError, match=r"in a notebook: %%writefile train\.py"):
            job_from(function)  # type: ignore[arg-type]
    train.__module__ = "__main__"
    with pytest.raises(JobError, match="is not one that a job could import"):
        job_from(train)
    with pytest.raises(JobError, match="did you mean 'deadline'"):
        job_from(import_module("tests.control.http_servers").run_server, deadlin="1h")
