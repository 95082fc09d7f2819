"""Every adapter against its framework's own stock run on four ranks: rescaled, and killed. `make test-frameworks`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.installed import need

from springtide.verification.cases import plan_cases
from springtide.verification.verify import VerifiedScript, verify

SCRIPTS = Path(__file__).parent / "scripts"
TORCHRUN = (str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node")
BY_STEPS = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
BEST = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}
HF, TRL, ACCELERATE = "hf_workload.py", "trl_workload.py", "accelerate_workload.py"
LIGHTNING, FABRIC = "lightning_workload.py", "fabric_workload.py"
NEEDS = {HF: "transformers", TRL: "trl", ACCELERATE: "accelerate", LIGHTNING: "lightning", FABRIC: "lightning"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "hf plain": (HF, {}),
    "hf accumulation": (HF, {"gradient_accumulation_steps": 2, "warmup_steps": 2, "collate": True}),
    "hf bf16 lora": (HF, {"bf16": True, "lora": True}),
    "hf by steps": (HF, {**BY_STEPS, "per_device_eval_batch_size": 4}),
    "hf start": (HF, {**BY_STEPS, **BEST, "eval_on_start": True, "patience": 1}),
    "hf compile": (HF, {"torch_compile": True, "torch_compile_backend": "aot_eager"}),
    "hf tokens": (HF, {"gradient_accumulation_steps": 4, "max_steps": 5, "include_num_input_tokens_seen": "all"}),
    "hf grouped": (HF, {"train_sampling_strategy": "group_by_length", "gradient_checkpointing": True}),
    "hf pool": (HF, {"dataloader_num_workers": 1, "average_tokens_across_devices": False}),
    "hf started again": (HF, {"save_strategy": "steps", "save_steps": 1, "resume": "last", "collate": True}),
    "sft lora": (TRL, {}),
    "sft packing": (TRL, {"packing": True, "max_length": 16, "per_device_train_batch_size": 2}),
    "dpo lora": (TRL, {"kind": "DPO", "gradient_accumulation_steps": 2}),
    "dpo": (TRL, {"kind": "DPO", "lora": False, "eval_strategy": "steps", "eval_steps": 3}),
    "reward": (TRL, {"kind": "Reward", "lora": False}),
    "accelerate": (ACCELERATE, {"accumulate": 2}),
    "accelerate baseline": (ACCELERATE, {"baseline": True}),
    "accelerate seedable": (ACCELERATE, {"accumulate": 3, "seedable": True}),
    "lightning plain": (LIGHTNING, {}),
    "lightning automatic": (LIGHTNING, {"accumulate": 2, "best": True}),
    "lightning validation between": (LIGHTNING, {"accumulate": 2, "check": 0.5}),
    "lightning logged": (LIGHTNING, {"accumulate": 2, "best": True, "logged": True}),
    "lightning samplers": (LIGHTNING, {"accumulate": 2, "samplers": True}),
    "lightning total": (LIGHTNING, {"total": True}),
    "lightning unchecked": (LIGHTNING, {"sanity": 0}),
    "lightning manual": (LIGHTNING, {"manual": True}),
    "fabric": (FABRIC, {}),
    "fabric accumulation": (FABRIC, {"accumulate": 3}),
    "fabric twice": (FABRIC, {"twice": True}),
}
#: How often one is killed, where it is not once: the second start finds what the first has counted.
KILLS = {"hf start": 2}
#: One of each framework, which CI runs with the refusals: `make test-frameworks-short`.
SHORT = ("hf by steps", "accelerate", "lightning plain", "fabric")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.short if name in SHORT else ()) for name in CASES]
)
def test_an_adapter_has_the_bits_of_its_framework(name: str) -> None:
    script, asked = CASES[name]
    need(NEEDS[script])
    check_bits(script, asked, KILLS.get(name, 1))


def check_bits(script: str, asked: dict[str, Any], kills: int = 1) -> None:
    """Compare a script's run under rescales, and under kills, with its framework's own on four ranks."""
    subject = VerifiedScript(SCRIPTS / script, (json.dumps(asked),), 4, 50, to_its_end=True)
    proof = verify(subject, "ddp", lambda steps: plan_cases("", "4,1,3", kills, 4, steps), print)
    assert proof.identical, proof.to_json()
    assert all(outcome.steps >= 5 for outcome in proof.outcomes)


def test_a_state_of_accelerate_is_loaded_with_the_bits_of_ranks_that_load_it(tmp_path: Path) -> None:
    """Saved in one process, it is loaded by four stock ranks, and by elastic processes that are rescaled and killed."""
    need("accelerate")
    folder = tmp_path / "saved"
    command = [sys.executable, str(SCRIPTS / ACCELERATE), json.dumps({"save": str(folder)})]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    check_bits(ACCELERATE, {"load": str(folder)})


#: The three lines that a script has changed, and what they were.
CHANGED = {
    "hf": [
        (r"^import springtide\n", ""),
        (r"^from springtide.integrations.hf import (Elastic(\w*Trainer))$", r"from transformers import \2 as \1"),
        (r"^springtide.init\(.*\)\n", ""),
    ],
    "lightning": [
        (r"^import springtide.integrations.lightning\n", ""),
        (r"^springtide.init\(.*\)\n", ""),
        (r'strategy="springtide', 'strategy="ddp'),
    ],
}


def make_stock(script: Path, place: Path, framework: str = "hf") -> Path:
    """The workload as it was before its three lines were changed."""
    text = script.read_text()
    for ours, theirs in CHANGED[framework]:
        text, count = re.subn(ours, theirs, text, flags=re.M)
        assert count == 1
    assert "springtide" not in text
    (place / "stock.py").write_text(text)
    return place / "stock.py"


def test_three_changed_lines_keep_the_weights_and_the_curve_of_torchrun(tmp_path: Path) -> None:
    """The script as it was under torchrun on four ranks, and as it is in one process: same weights, same logs."""
    need("transformers")
    asked = {**BY_STEPS, "per_device_eval_batch_size": 4, "gradient_accumulation_steps": 2, "save": "final"}
    commands = {
        "stock": [*TORCHRUN, "4", str(make_stock(SCRIPTS / HF, tmp_path)), json.dumps(asked)],
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


@pytest.mark.parametrize("asked", [{"accumulate": 2}, {"manual": True}], ids=["automatic", "manual"])
def test_three_changed_lines_keep_the_weights_of_lightnings_own_ranks(tmp_path: Path, asked: dict[str, Any]) -> None:
    """The script as it was, which starts its four ranks by itself, and as it is in one process and in two."""
    need("lightning")
    import torch

    script = SCRIPTS / LIGHTNING
    commands = {
        "stock": [sys.executable, str(make_stock(script, tmp_path, "lightning"))],
        "one": [sys.executable, str(script)],
        "two": [*TORCHRUN, "2", str(script)],
    }
    weights = {}
    for name, command in commands.items():
        (tmp_path / name).mkdir()
        words = [*command, json.dumps({**asked, "save": "final.ckpt"})]
        done = subprocess.run(words, cwd=tmp_path / name, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        weights[name] = torch.load(tmp_path / name / "final.ckpt", weights_only=False)["state_dict"]
    for name in ("one", "two"):
        assert weights[name].keys() == weights["stock"].keys()
        assert all(torch.equal(tensor, weights["stock"][key]) for key, tensor in weights[name].items())


def collect_results(place: Path, commands: dict[str, list[str]], variant: str) -> dict[str, str]:
    """What each command prints as its result."""
    results = {}
    importing = {**os.environ, "PYTHONPATH": str(SCRIPTS.parents[2])}
    for name, command in commands.items():
        (place / name).mkdir()
        done = subprocess.run([*command, variant], cwd=place / name, capture_output=True, text=True, env=importing)
        assert done.returncode == 0, done.stderr[-2000:]
        (results[name],) = re.findall(r"^RESULT (.*)$", done.stdout, re.M)
    return results


@pytest.mark.parametrize(
    "variant", ["best", "own", "unlogged", "plateau", "grouped", "overridden", "half", "modes", "masked", "seq2seq"]
)
def test_what_scripts_of_users_have_gives_the_results_of_torchrun(tmp_path: Path, variant: str) -> None:
    """Weights, predictions after training and the whole history of logs, on one process and on two."""
    need("transformers")
    script = SCRIPTS / ("seq2seq_workload.py" if variant == "seq2seq" else "hf_variants_workload.py")
    ranks = [*TORCHRUN, "2"]
    commands = {
        "stock": [*ranks, str(make_stock(script, tmp_path))],
        "one": [sys.executable, str(script)],
        "two": [*ranks, str(script)],
    }
    results = collect_results(tmp_path, commands, variant)
    assert results["one"] == results["stock"]
    assert results["two"] == results["stock"]


def test_what_a_loss_logs_takes_nothing_from_an_evaluation(tmp_path: Path) -> None:
    """TRL adds its metrics of an evaluation to the log that comes first after it, which was one of training."""
    need("trl")
    options = {"logging": True, "eval_strategy": "steps", "eval_steps": 2, "max_steps": 4}
    command = [sys.executable, str(SCRIPTS / TRL), json.dumps(options)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = re.findall(r"^RESULT (.*)$", done.stdout, re.M)
    rows = json.loads(line)
    assert [row["step"] for row in rows if "own" in row] == [0, 1, 2, 3]
    assert ["eval_loss" in row for row in rows] == ["eval_mean_token_accuracy" in row for row in rows]


@pytest.mark.parametrize("variant", ["options", "warmed", "alternating", "hoarding", "watched", "asking"])
def test_what_modules_of_users_have_gives_the_weights_of_lightnings_own_ranks(tmp_path: Path, variant: str) -> None:
    """Options, hooks and optimizers as modules have them, on one process and on two."""
    need("lightning")
    script = SCRIPTS / "lightning_variants_workload.py"
    commands = {
        "stock": [sys.executable, str(make_stock(script, tmp_path, "lightning"))],
        "one": [sys.executable, str(script)],
        "two": [*TORCHRUN, "2", str(script)],
    }
    results = collect_results(tmp_path, commands, variant)
    assert results["one"] == results["stock"]
    assert results["two"] == results["stock"]


def test_a_checkpoint_of_ours_is_resumed_by_the_stock_trainer(tmp_path: Path) -> None:
    """Both go on from a checkpoint that the elastic run has saved in the Trainer's form, to the same weights."""
    need("transformers")
    saving = {"save_strategy": "steps", "save_steps": 4}
    first = [sys.executable, str(SCRIPTS / HF), json.dumps({**saving, "max_steps": 4, "lr_scheduler_type": "constant"})]
    subprocess.run(first, cwd=tmp_path, check=True, capture_output=True)
    resumed = {"resume": str(tmp_path / "out" / "checkpoint-4"), "max_steps": 9, "lr_scheduler_type": "constant"}
    commands = {
        "stock": [*TORCHRUN, "4", str(make_stock(SCRIPTS / HF, tmp_path))],
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
    need("transformers")
    command = [sys.executable, str(SCRIPTS / HF), json.dumps({"gather": True})]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert re.search(r"accelerator\.gather in a turn \(__main__\)", done.stderr), done.stderr[-2000:]
