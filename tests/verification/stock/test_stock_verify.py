"""`springtide verify --stock`: scripts without a word of ours in them, under torchrun and python."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from springtide.cli.app import main
from springtide.verification.stock.recorded_runs import SHIM

# standalone: at a port of its own, not at the one that every other torchrun of this machine takes
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
PLAIN = """
import os, sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
for step in range(1, 5):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
"""
DDP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean folder to be in."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def verify(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["verify", "--stock", *words])
    return int(end.value.code or 0)


def read_document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_script_that_repeats_itself_is_identical(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(PLAIN)
    assert verify("--", sys.executable, "train.py") == 0
    shown = capsys.readouterr().out
    assert "identical" in shown and "recording took" in shown and "1 of 1 run identical" in shown


def test_the_first_step_and_tensor_that_differ_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drifting = PLAIN.replace(
        "    optimizer.step()", "    if step == 3: model[2].bias.grad += os.getpid() % 1009 + 1\n    optimizer.step()"
    ).replace("torch.optim.Adam(model.parameters())", "torch.optim.SGD(model.parameters(), lr=0.1)")
    (folder / "train.py").write_text(drifting)
    assert verify("-o", "json", "--", sys.executable, "train.py") == 1
    document = read_document(capsys)
    difference = document["runs"][0]["first_difference"]
    assert document["identical"] is False
    assert (difference["step"], difference["tensor"], difference["rank"]) == (3, "2.bias", 0)
    assert (difference["differing"], difference["tensors"]) == (1, 4)


def test_torchrun_is_recorded_rank_by_rank_and_compared_with_fewer(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text(DDP)
    fewer = " ".join([*TORCHRUN, "1", "train.py"])
    assert verify("--against-command", fewer, "-o", "json", "--", *TORCHRUN, "2", "train.py") == 1
    document = read_document(capsys)
    run = document["runs"][0]
    assert "ranks" in run, document  # else it says why it could not be compared
    assert (document["reference"]["ranks"], run["ranks"], run["steps"]) == (1, 2, 3)
    assert run["ranks_agree"] is True
    assert run["first_difference"]["step"] == 1 and run["first_difference"]["tensor"] == "0.weight"


@pytest.mark.slow
def test_a_rank_that_alone_goes_astray_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(DDP)
    assert verify("--record", "before.json", "--", *TORCHRUN, "2", "train.py") == 0
    assert "3 steps on 2 ranks" in capsys.readouterr().out
    astray = "    if step == 1 and dist.get_rank() == 1: model.module[0].weight.data[0, 0] += 1\n    optimizer.step()"
    (folder / "train.py").write_text(DDP.replace("    optimizer.step()", astray))
    assert verify("--against", "before.json", "-o", "json", "--", *TORCHRUN, "2", "train.py") == 1
    run = read_document(capsys)["runs"][0]
    assert (run["first_difference"]["step"], run["first_difference"]["rank"]) == (2, 1)
    assert run["first_difference"]["tensor"] == "0.weight"
    assert run["ranks_agree"] is False


@pytest.mark.slow
def test_a_scripts_own_snapshot_does_not_leak_into_the_next_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resuming = PLAIN.replace(
        "for step", "if os.path.exists('s.pt'): model.load_state_dict(torch.load('s.pt'))\nfor step"
    )
    (folder / "train.py").write_text(resuming + "torch.save(model.state_dict(), 's.pt')\n")
    assert verify("--", sys.executable, "train.py") == 0
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"]
    assert verify("--in-place", "--", sys.executable, "train.py") == 1
    assert "different" in capsys.readouterr().out


@pytest.mark.slow
def test_steps_end_a_run_that_would_not_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(PLAIN.replace("range(1, 5)", "iter(int, 1)"))
    assert verify("--steps", "3", "-o", "json", "--", sys.executable, "train.py") == 0
    assert read_document(capsys)["runs"][0]["steps"] == 3


@pytest.mark.slow
def test_two_optimizers_are_told_apart_and_every_leaves_steps_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = "other = torch.optim.SGD(model[2:].parameters(), lr=0.1)\nfor step"
    (folder / "train.py").write_text(PLAIN.replace("for step", second) + "    other.step()\n")
    assert verify("--record", "two.json", "--every", "2", "--", sys.executable, "train.py") == 0
    recording = json.loads((folder / "two.json").read_text())
    assert [(step[0], step[1], len(step[2:])) for step in recording["ranks"][0]["steps"]] == [
        (0, 2, 4),
        (1, 2, 2),
        (0, 4, 4),
        (1, 4, 2),
    ]
    capsys.readouterr()
    assert verify("--against", "two.json", "--", sys.executable, "train.py") == 2
    assert "after every 2 steps" in capsys.readouterr().err


def test_a_sitecustomize_of_the_users_still_runs(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import builtins\nbuiltins.greeting = 'hello'\n")
    environ = {"PYTHONPATH": f"{SHIM}{os.pathsep}{folder}", "SPRINGTIDE_STOCK_DIR": str(folder)}
    program = "import sys; print(greeting, 'torch' in sys.modules, sys.modules['sitecustomize'].__file__)"
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["hello", "False", str(folder / "sitecustomize.py")]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", sys.executable, "-c", "print(1)"], 2, "no optimizer step was seen"),
        (["--", sys.executable, "-I", "train.py"], 2, "no python -I"),
        (["--", "no-such-command", "train.py"], 2, "'no-such-command' was not found"),
        (["--", sys.executable, "-c", "raise SystemExit('no data')"], 1, "no data"),
        (["--against", "nowhere.json", "--", sys.executable, "train.py"], 2, "nowhere.json is no recording"),
        (["--against", "a", "--record", "b", "--", sys.executable, "train.py"], 2, "cannot go together"),
        (["--record", "no/where.json", "--", sys.executable, "train.py"], 2, "cannot write no/where.json"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    folder: Path, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text(PLAIN)
    assert verify(*words) == code
    assert said in capsys.readouterr().err


def test_options_of_stock_are_refused_without_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(PLAIN)
    with pytest.raises(SystemExit) as end:
        main(["verify", "--record", "a.json", "train.py"])
    assert end.value.code == 2
    assert "go with --stock" in capsys.readouterr().err
