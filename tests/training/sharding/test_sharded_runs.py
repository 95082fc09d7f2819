"""Sharded models: the bits of stock DDP on any processes, through rescales and kills; what they have not is refused."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from tests.training.equality import SCRIPTS, EqualityRuns
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.fsdp import fully_shard

from springtide.core.receipt_format import check_chain
from springtide.errors import JobError
from springtide.training.parts import refuse_foreign
from springtide.training.sharding.meshes import make_mesh
from springtide.training.sharding.model_sharding import ModelSharding
from springtide.training.sharding.sharded_parameters import cut_rows
from springtide.training.state.state_chain import read_chain
from springtide.verification.digest_compare import Records, find_difference

SHARDED = SCRIPTS / "sharded.py"


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # torch's, on loading in one process
def test_a_sharded_model_has_the_bits_of_ddp_through_a_rescale_and_a_kill(equality: EqualityRuns) -> None:
    stock = equality.run_script(SHARDED, [(0, "4")], mode="reference")
    saved = equality.new_folder()
    kept = {"checkpoint_dir": saved, "checkpoint_every_steps": 3, "chain": saved / "chain.jsonl"}
    ours = equality.run_script(SHARDED, [(0, "2+1+1"), (3, "4"), (5, "1")], [8], **kept)
    assert len(stock) == 10
    assert find_difference(stock, ours) is None
    check_readable(max(saved.glob("step-*")))
    check_chained(saved / "chain.jsonl", stock)


def check_readable(folder: Any) -> None:
    """A checkpoint is read by torch's own distributed checkpoints, whole tensors under the model's names."""
    weights = load_file(folder / "model.safetensors")
    read = {name: torch.full_like(tensor, -1) for name, tensor in weights.items()}
    dcp.load(read, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    assert weights["tokens.weight"].shape == (7, 6)
    assert all(torch.equal(read[name], tensor) for name, tensor in weights.items())


def check_chained(file: Path, stock: Records) -> None:
    """The chain of its receipt has the states of stock DDP at checkpoints, where it was resumed and at its end."""
    lines = read_chain(file)
    check_chain(lines)
    links = [(line["step"], line["state"]) for line in lines if "state" in line]
    assert [line["step"] for line in lines if line.get("resumed")] == [6]
    assert [step for step, _ in links] == [3, 6, 6, 9, 10]
    for step, state in links:
        named = sorted(
            (name, digest)
            for name, (digest,) in stock[step].items()
            if name.startswith(("parameter ", "buffer ", "optimizer 0 "))
        )
        assert state == hashlib.sha256(json.dumps(named).encode()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1", "2", "3", "4", "3+1", "1+2+1"])
def test_placements_of_a_sharded_model_have_the_bits_of_ddp(equality: EqualityRuns, size: str) -> None:
    stock = equality.run_script(SHARDED, [(0, "4")], mode="reference")
    assert find_difference(stock, equality.run_script(SHARDED, [(0, size)])) is None


@pytest.mark.parametrize("rows", [1, 3, 7, 8])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_rows_are_cut_as_torch_cuts_them(rows: int, size: int) -> None:
    whole = torch.arange(rows * 2).view(rows, 2)
    cut = cut_rows(whole.shape, size)
    parts = [whole[cut.find_rows(rank)] for rank in range(size)]
    expected = [*torch.chunk(whole, size), *[whole[:0]] * size][:size]
    assert all(torch.equal(found, wanted) for found, wanted in zip(parts, expected, strict=True))
    assert [cut.count(rank) for rank in range(size)] == [part.numel() for part in parts]


REFUSALS: dict[str, Any] = {
    "mesh": "the mesh is all processes of the run",
    "mp_policy": "for bfloat16 use torch.autocast",
    "offload_policy": "shards stay on the device",
    "reshard_after_forward": "only while a module uses them",
}


@pytest.mark.parametrize("option", REFUSALS)
def test_options_that_an_elastic_run_has_not_are_refused_by_name(option: str) -> None:
    with pytest.raises(JobError, match=rf"run.fully_shard\(..., {option}=...\) is not for elastic runs: .*") as caught:
        ModelSharding().add(torch.nn.Linear(2, 2), {option: False})
    assert REFUSALS[option] in str(caught.value)


def test_a_model_that_is_sharded_in_part_is_refused() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    sharding = ModelSharding()
    sharding.add(model[0], {"reshard_after_forward": True})
    with pytest.raises(JobError, match=r"parameter 1.weight is not sharded and others are; .*run.fully_shard\(model\)"):
        sharding.adopt([model], [])


def test_a_model_of_torchs_fully_shard_is_refused() -> None:
    model: Any = fully_shard(torch.nn.Linear(2, 2), mesh=make_mesh(None, 0, "cpu"))
    with pytest.raises(JobError, match=r"FSDPLinear of torch's fully_shard, .* write run.fully_shard"):
        refuse_foreign([model], [])


def test_a_sum_over_shards_is_refused_with_the_way_that_keeps_the_bits() -> None:
    group = make_mesh(None, 0, "cpu").get_group(0)
    with pytest.raises(JobError, match=r"its bits depend on how many there are; clip with run.clip_grad_norm_"):
        group.allreduce([torch.ones(1)])
