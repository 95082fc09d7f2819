"""`springtide verify`: its verdict, its document, and its exit codes."""

import json
import re
from pathlib import Path

import pytest

from springtide.cli.app import main
from springtide.errors import JobError, TrainingError
from springtide.verification.cases import plan_kills, plan_rescale
from springtide.verification.digest_compare import Difference
from springtide.verification.renumber import find_workers
from springtide.verification.verify import CaseResult, Proof, check_restarts, check_resumed

HONEST = """
import torch, springtide
run = springtide.init(logical_workers=4, seed=0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=4)
for epoch in run.epochs(1):
    for step in loader:
        for x, y in step:
            loss = (model(x) - y).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
# Scales its loss by which process it is, from the second step on: what no runtime can make equal.
DISHONEST = HONEST.replace("import torch", "import os, torch").replace(
    ".mean()", ".mean() * (1.0 if optimizer.state_dict()['state'] == {} else 1.0 + os.getpid() % 1009 / 1e3)"
)

# An average that only the script knows of, in a variable that nobody can set from outside.
WITH_EMA = HONEST.replace("data =", "from torch.optim.swa_utils import AveragedModel\nema = None\ndata =").replace(
    "        optimizer.zero_grad()",
    """        optimizer.zero_grad()
        if ema is None:
            ema = AveragedModel(model)
        ema.update_parameters(model)""",
)
# The same by hand, in a list that is made after the loop was entered.
WITH_SHADOW = HONEST.replace("data =", "shadow = None\ndata =").replace(
    "        optimizer.zero_grad()",
    """        optimizer.zero_grad()
        if shadow is None:
            shadow = [p.detach().clone() for p in model.parameters()]
        for s, p in zip(shadow, model.parameters()):
            s.lerp_(p.detach(), 0.1)""",
)
# Counts in a variable, which a process that resumes has not; the best loss is where it belongs.
COUNTING = (
    HONEST.replace("for epoch", 'seen, run.state["best"] = 0, run.state.get("best", 9.0)\nfor epoch')
    + """
        seen += 1
        run.state["best"] = min(run.state["best"], seen)
"""
).replace("zero_grad()\n\n", "zero_grad()\n")
# Goes on from weights of an earlier run, beside the script, in the folder it is in, at home or among temporary files.
WITH_SNAPSHOT = (
    HONEST.replace(
        "data =",
        """import os, pathlib, tempfile
places = (pathlib.Path(__file__).parent, pathlib.Path.cwd(), pathlib.Path.home(), pathlib.Path(tempfile.gettempdir()))
for place in places:
    if (place / "springtide-test-snapshot.pt").exists():
        model.load_state_dict(torch.load(place / "springtide-test-snapshot.pt"))
data =""",
    )
    + """
if run.is_main:
    for place in places:
        weights = {name: each.clone() for name, each in model.state_dict().items()}
        torch.save(weights, place / "springtide-test-snapshot.pt")
"""
)


def run_verify(words: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        main(["verify", *words])
    return int(end.value.code or 0)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(HONEST)
    return path


def test_the_document_is_the_one_promised() -> None:
    same, other = CaseResult("4", None, 50), CaseResult("2", Difference(7, "parameter weight"), 50)
    document = Proof("ddp", (same, other)).to_json()
    assert document["identical"] is False and document["reference"] == "ddp" and document["schema"] == 1
    first, second = document["cases"]
    assert {key: first[key] for key in ("name", "identical", "first_difference", "steps")} == {
        "name": "4",
        "identical": True,
        "first_difference": None,
        "steps": 50,
    }
    assert second["first_difference"] == {"step": 7, "tensor": "parameter weight"}


def test_a_run_that_failed_is_not_identical() -> None:
    assert not CaseResult("kill 2", None, 50, error="process p1 was lost").identical


@pytest.mark.parametrize(
    ("text", "workers"),
    [
        (HONEST, 4),
        ("import springtide\nspringtide.init(3)\n", 3),
        ("import sys\nfrom springtide import init\nprint('Hi')\ninit(int(sys.argv[1]), seed=1)\n", 5),
    ],
)
def test_the_number_of_logical_workers_is_read_in_the_script_or_asked_of_it(
    script: Path, text: str, workers: int
) -> None:
    script.write_text(text)
    assert find_workers(script, ["5"]) == workers


@pytest.mark.parametrize(
    ("text", "said"),
    [("print(4)\nraise SystemExit('no data')\n", "no data"), ("import springtide\n", "without a call")],
)
def test_a_script_that_does_not_get_to_init_is_refused(script: Path, text: str, said: str) -> None:
    script.write_text(text)
    with pytest.raises(JobError, match=rf"did not get to springtide\.init.*{said}"):
        find_workers(script, [])


def test_an_honest_script_is_identical_in_every_case(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "verdict.json"
    options = ["--sizes", "1,3+1", "--rescale", "4,1,3", "--kill", "1", "--steps", "6", "--json", str(file)]
    assert run_verify([str(script), *options]) == 0
    document = json.loads(file.read_text())
    assert [case["name"] for case in document["cases"]] == ["1", "3+1", "rescale 4,1,3", "kill 1"]
    assert document["cases"][3]["resumed_from"][0] >= 1
    assert document["identical"] is True
    shown = capsys.readouterr()
    assert "4 of 4 cases identical" in shown.out and "resumed from step" in shown.out
    assert "warning" not in shown.out and not any(case["warnings"] for case in document["cases"])
    assert "reference: ddp" in shown.err


def test_what_prepare_was_not_given_is_compared_and_named(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(WITH_EMA)
    options = ["--sizes", "4", "--rescale", "", "--kill", "1", "--steps", "4"]
    assert run_verify([str(script), *options]) == 1
    shown = capsys.readouterr().out
    assert "1 of 2 cases identical" in shown
    assert "alive ema (AveragedModel) " in shown and "run.prepare was not given it" in shown
    assert "ema was AveragedModel(...) and is None" in " ".join(shown.split())


def test_averages_in_a_list_that_a_resume_loses_are_found(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(WITH_SHADOW)
    options = ["--sizes", "4", "--rescale", "", "--kill", "1", "--steps", "4"]
    assert run_verify([str(script), *options]) == 1
    shown = capsys.readouterr().out
    assert "1 of 2 cases identical" in shown
    assert "alive shadow" in shown


def test_a_counter_that_a_resume_loses_is_named(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(COUNTING)
    assert run_verify([str(script), "--sizes", "", "--rescale", "", "--kill", "1", "--steps", "4"]) == 0
    shown = capsys.readouterr().out
    assert "1 of 1 cases identical" in shown
    assert re.search(r"goes on from step (\d) without .*: seen was \1 and is 0\. ", shown)


def test_a_scripts_own_files_do_not_leak_between_cases(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(WITH_SNAPSHOT)
    options = ["--sizes", "4,1", "--rescale", "", "--kill", "0", "--steps", "3"]
    assert run_verify([str(script), *options]) == 0
    assert sorted(path.name for path in script.parent.iterdir()) == ["train.py"]


def test_a_kill_that_nothing_resumed_from_fails_its_case() -> None:
    case = plan_kills(2, 4, 6)
    check_resumed(case, (1, 3))
    with pytest.raises(TrainingError, match="after 2 kills 1 starts resumed from a step"):
        check_resumed(case, (3,))
    with pytest.raises(TrainingError, match="after 2 kills 1 starts resumed from a step"):
        check_resumed(case, (0, 3))


def test_a_rescale_that_ended_in_a_restart_fails_its_case() -> None:
    """A process that joined and waited for the others was lost, and the job begun anew had the same bits."""
    check_restarts(plan_kills(2, 4, 6), 2)
    check_restarts(plan_rescale(["4", "1"], 4, 6), 0)
    with pytest.raises(TrainingError, match="it was started again 1 times for 0 kills"):
        check_restarts(plan_rescale(["4", "1"], 4, 6), 1)


def test_another_number_of_logical_workers_can_be_tried(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--logical-workers", "3", "--sizes", "2", "--rescale", "", "--kill", "0", "--steps", "3", "-o", "json"]
    assert run_verify([str(script), *options]) == 0
    assert json.loads(capsys.readouterr().out)["identical"] is True


def test_a_difference_is_named_and_fails(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(DISHONEST)
    options = ["--against", "self", "--sizes", "2", "--rescale", "", "--kill", "0", "--steps", "3", "--json", "-"]
    assert run_verify([str(script), *options]) == 1
    document = json.loads(capsys.readouterr().out)
    difference = document["cases"][0]["first_difference"]
    assert difference["step"] == 2
    assert difference["tensor"].startswith("loss 0 of logical worker")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sizes", "5"], "5 processes"),
        (["--sizes", "3+2"], "3+2"),
        (["--sizes", "two"], "two"),
        (["--kill", "9", "--steps", "5"], "9 kills"),
        (["--sizes", "", "--rescale", "", "--kill", "0"], "nothing to compare"),
        (["--json", "nowhere/verdict.json"], "cannot write nowhere/verdict.json"),
        (["--rescale", "4,1,3", "--steps", "2"], "3 sizes"),
    ],
)
def test_bad_options_are_refused(
    script: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verify([str(script), *options]) == 2
    assert said in capsys.readouterr().err


def test_a_script_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verify([str(tmp_path / "no.py")]) == 2
    assert "no.py does not exist" in capsys.readouterr().err


def test_without_a_number_of_steps_a_short_script_is_compared_to_its_end(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--sizes", "1", "--rescale", "", "--kill", "0", "--against", "self", "--json", "-"]
    assert run_verify([str(script), *options]) == 0
    assert [case["steps"] for case in json.loads(capsys.readouterr().out)["cases"]] == [6]


def test_a_script_that_ends_too_early_is_refused(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verify([str(script), "--steps", "50", "--sizes", "1", "--against", "self"]) == 2
    assert "ended after 6 steps" in capsys.readouterr().err
