"""Every adapter against its framework's own stock run on four ranks: rescaled, and killed. `make test-frameworks`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from springtide.verification.cases import plan_cases
from springtide.verification.verify import VerifiedScript, verify

SCRIPTS = Path(__file__).parent / "scripts"
BY_STEPS = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
HF, TRL, ACCELERATE = "hf_workload.py", "trl_workload.py", "accelerate_workload.py"
LIGHTNING, FABRIC = "lightning_workload.py", "fabric_workload.py"
NEEDS = {HF: "transformers", TRL: "trl", ACCELERATE: "accelerate", LIGHTNING: "lightning", FABRIC: "lightning"}
CASES = {
    "hf plain": (HF, {}),
    "hf accumulation": (HF, {"gradient_accumulation_steps": 2, "warmup_steps": 2, "collate": True}),
    "hf bf16 lora": (HF, {"bf16": True, "lora": True}),
    "hf by steps": (HF, {**BY_STEPS, "per_device_eval_batch_size": 4}),
    "hf compile": (HF, {"torch_compile": True, "torch_compile_backend": "aot_eager"}),
    "hf tokens": (HF, {"gradient_accumulation_steps": 4, "max_steps": 5, "include_num_input_tokens_seen": "all"}),
    "hf grouped": (HF, {"train_sampling_strategy": "group_by_length", "gradient_checkpointing": True}),
    "hf pool": (HF, {"dataloader_num_workers": 1, "average_tokens_across_devices": False}),
    "sft lora": (TRL, {}),
    "dpo lora": (TRL, {"kind": "DPO", "gradient_accumulation_steps": 2}),
    "dpo": (TRL, {"kind": "DPO", "lora": False, "eval_strategy": "steps", "eval_steps": 3}),
    "reward": (TRL, {"kind": "Reward", "lora": False}),
    "accelerate": (ACCELERATE, {"accumulate": 2}),
    "lightning plain": (LIGHTNING, {}),
    "lightning automatic": (LIGHTNING, {"accumulate": 2, "best": True}),
    "lightning manual": (LIGHTNING, {"manual": True}),
    "fabric": (FABRIC, {}),
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_an_adapter_has_the_bits_of_its_framework(name: str) -> None:
    script, asked = CASES[name]
    pytest.importorskip(NEEDS[script], reason=f"{NEEDS[script]} is not installed; `make test-frameworks` installs it")
    subject = VerifiedScript(SCRIPTS / script, (json.dumps(asked),), 4, 50, to_its_end=True)
    proof = verify(subject, "ddp", lambda steps: plan_cases("", "4,1,3", 1, 4, steps), print)
    assert proof.identical, proof.to_json()
    assert all(outcome.steps >= 5 for outcome in proof.outcomes)


def make_stock(script: Path, place: Path) -> Path:
    """The workload as it was before its three lines were changed."""
    text = script.read_text()
    for ours, theirs in [
        (r"^import springtide\n", ""),
        (r"^from springtide.integrations.hf import (Elastic(\w*Trainer))$", r"from transformers import \2 as \1"),
        (r"^springtide.init\(.*\)\n", ""),
    ]:
        text, count = re.subn(ours, theirs, text, flags=re.M)
        assert count == 1
    assert "springtide" not in text
    (place / "stock.py").write_text(text)
    return place / "stock.py"


def test_three_changed_lines_keep_the_weights_and_the_curve_of_torchrun(tmp_path: Path) -> None:
    """The script as it was under torchrun on four ranks, and as it is in one process: same weights, same logs."""
    pytest.importorskip("transformers", reason="springtide[hf] is not installed; `make test-frameworks` installs it")
    asked = {**BY_STEPS, "per_device_eval_batch_size": 4, "gradient_accumulation_steps": 2, "save": "final"}
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    commands = {
        "stock": [torchrun, "--nproc-per-node", "4", str(make_stock(SCRIPTS / HF, tmp_path)), json.dumps(asked)],
        "ours": [sys.executable, str(SCRIPTS / HF), json.dumps(asked)],
    }
    for name, command in commands.items():
        (tmp_path / name).mkdir()
        done = subprocess.run(command, cwd=tmp_path / name, capture_output=True, text=True, env=dict(os.environ))
        assert done.returncode == 0, done.stderr[-2000:]
    weights = [(tmp_path / name / "final" / "model.safetensors").read_bytes() for name in commands]
    assert weights[0] == weights[1]
    stock, ours = ((tmp_path / name / "out" / "checkpoint-6") for name in commands)
    states = [json.loads((folder / "trainer_state.json").read_text()) for folder in (stock, ours)]
    timeless = [
        [{key: value for key, value in row.items() if not key.endswith(("runtime", "per_second"))} for row in one]
        for one in (state["log_history"] for state in states)
    ]
    assert timeless[0] == timeless[1]
    assert states[0]["total_flos"] == states[1]["total_flos"]
    assert {file.name for file in stock.iterdir()} == {file.name for file in ours.iterdir()}


@pytest.mark.parametrize("variant", ["best", "own", "plateau", "seq2seq"])
def test_what_scripts_of_users_have_gives_the_results_of_torchrun(tmp_path: Path, variant: str) -> None:
    """Weights, predictions after training and the whole history of logs, on one process and on two."""
    pytest.importorskip("transformers", reason="springtide[hf] is not installed; `make test-frameworks` installs it")
    script = SCRIPTS / ("seq2seq_workload.py" if variant == "seq2seq" else "hf_variants_workload.py")
    ranks = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node", "2"]
    commands = {
        "stock": [*ranks, str(make_stock(script, tmp_path))],
        "one": [sys.executable, str(script)],
        "two": [*ranks, str(script)],
    }
    results = {}
    importing = {**os.environ, "PYTHONPATH": str(SCRIPTS.parents[2])}
    for name, command in commands.items():
        (tmp_path / name).mkdir()
        done = subprocess.run([*command, variant], cwd=tmp_path / name, capture_output=True, text=True, env=importing)
        assert done.returncode == 0, done.stderr[-2000:]
        (results[name],) = re.findall(r"^RESULT (.*)$", done.stdout, re.M)
    assert results["one"] == results["stock"]
    assert results["two"] == results["stock"]


def test_a_checkpoint_of_ours_is_resumed_by_the_stock_trainer(tmp_path: Path) -> None:
    """Both go on from a checkpoint that the elastic run has saved in the Trainer's form, to the same weights."""
    pytest.importorskip("transformers", reason="springtide[hf] is not installed; `make test-frameworks` installs it")
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    saving = {"save_strategy": "steps", "save_steps": 4}
    first = [sys.executable, str(SCRIPTS / HF), json.dumps({**saving, "max_steps": 4, "lr_scheduler_type": "constant"})]
    subprocess.run(first, cwd=tmp_path, check=True, capture_output=True)
    resumed = {"resume": str(tmp_path / "out" / "checkpoint-4"), "max_steps": 9, "lr_scheduler_type": "constant"}
    commands = {
        "stock": [torchrun, "--nproc-per-node", "4", str(make_stock(SCRIPTS / HF, tmp_path))],
        "ours": [sys.executable, str(SCRIPTS / HF)],
    }
    for name, command in commands.items():
        words = [*command, json.dumps({**resumed, "save": name})]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "stock" / "model.safetensors").read_bytes() == (
        tmp_path / "ours" / "model.safetensors"
    ).read_bytes()


def test_a_loss_of_all_ranks_is_refused(tmp_path: Path) -> None:
    """Where each worker takes its turn no place has a value of all: it trained without a word."""
    pytest.importorskip("transformers", reason="springtide[hf] is not installed; `make test-frameworks` installs it")
    command = [sys.executable, str(SCRIPTS / HF), json.dumps({"gather": True})]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert re.search(r"accelerator\.gather in a turn \(__main__\)", done.stderr), done.stderr[-2000:]
