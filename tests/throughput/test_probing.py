"""Profiling: which runs are made, what becomes of their records, and that a script that cannot be measured says why."""

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from springtide.errors import JobError
from springtide.throughput.probing import Measurement, ProbeTrial, ProfiledScript, make_profile, plan_trials, run_trial

SCRIPT = """
    import torch
    import springtide

    run = springtide.init(logical_workers=4, seed=0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.ones(4096, 8), torch.ones(4096, 1))
    model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=8)
    for epoch in run.epochs(50):
        for step in loader:
            for x, y in step:
                ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


def measure(trial: ProbeTrial, batch: int, *steps_s: float) -> Measurement:
    facts = {"local_batch": batch, "transport": "gloo" if trial.processes > 1 else "none", "gradient_bytes": 36}
    return Measurement(trial, steps_s, facts)


def write(folder: Path, text: str) -> ProfiledScript:
    script = folder / "train.py"
    script.write_text(dedent(text), encoding="utf-8")
    return ProfiledScript(script, (), "net", "cpu")


def test_the_first_run_is_repeated_for_the_noise() -> None:
    trials = plan_trials([1, 2])
    assert trials[0] == trials[-1] == ProbeTrial(1, 1.0)
    assert {trial.factor for trial in trials if trial.processes == 1} == {0.5, 1.0, 2.0}
    assert {trial.factor for trial in trials if trial.processes == 2} == {1.0, 2.0}


def test_what_two_devices_take_longer_is_synchronisation() -> None:
    subject = ProfiledScript(Path("train.py"), (), "net", "cpu")
    measured = [
        measure(ProbeTrial(1, 1), 8, 1.0, 1.0, 5.0),
        measure(ProbeTrial(2, 1), 8, 1.4),
        measure(ProbeTrial(1, 1), 8, 1.1),
    ]
    profile = make_profile(subject, measured)
    assert [point.step_s for point in profile.points] == [1.0, 1.4, 1.1]
    assert profile.points[0].sync_s == 0
    assert profile.points[1].sync_s == pytest.approx(0.3)
    assert profile.notes["noise"] == pytest.approx(0.1)
    assert profile.notes["transport"] == ["gloo"]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_real_script_is_measured_at_another_batch(tmp_path: Path, processes: int) -> None:
    found = run_trial(write(tmp_path, SCRIPT), ProbeTrial(processes, 2.0), 20, 6)
    assert found.facts["local_batch"] == 16
    assert found.facts["gradient_bytes"] == 9 * 4
    assert found.facts["script_logical_workers"] == 4
    # 4096 samples in global batches of 4 x 8, fifty times, whatever was tried
    assert (found.facts["steps_per_epoch"], found.facts["script_steps"]) == (128, 6400)
    assert len(found.steps_s) >= 5
    assert found.step_s > 0


def test_operations_and_memory_are_counted(tmp_path: Path) -> None:
    found = run_trial(write(tmp_path, SCRIPT), ProbeTrial(1, 1.0), 20, 1, count=True)
    # Forward 2 x 8 x 8 x 1, and as much for the weight's gradient; the input needs none.
    assert found.facts["flops"] == 256
    assert found.facts["activation_bytes"] > 0


def test_a_script_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"ended with 1 before its first step \(ValueError: no data\)"):
        run_trial(write(tmp_path, 'raise ValueError("no data")'), ProbeTrial(1, 1.0), 5, 5)


def test_a_script_runs_in_its_folder_and_ends_with_its_loop(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("8", encoding="utf-8")
    text = SCRIPT.replace("batch_size=8", 'batch_size=int(open("data.txt").read())')
    subject = write(tmp_path, text + "    torch.save(model.state_dict(), 'model.pt')\n")
    assert run_trial(replace(subject, folder=tmp_path), ProbeTrial(1, 1.0), 20, 5).facts["local_batch"] == 8
    assert not (tmp_path / "model.pt").exists()
