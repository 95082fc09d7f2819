"""The script for Ray Train's elastic mode: one or two workers, restarted from the last checkpoint on any change."""

import sys
import tempfile
from pathlib import Path

import ray
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch.utils.data import DistributedSampler

from benchmarks.peers.workload import BATCH, FOLDER, SAVE_EVERY, STEPS, NumberedData, make_model, record, save_weights


def train() -> None:
    """What each worker does."""
    model = ray.train.torch.prepare_model(make_model())
    plain = getattr(model, "module", model)  # a worker alone is not wrapped, and another number of them reads its state
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    first = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as place:
            saved = torch.load(Path(place) / "state.pt")
        plain.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    context = ray.train.get_context()
    data = NumberedData()
    sampler: DistributedSampler[object] = DistributedSampler(data, context.get_world_size(), context.get_world_rank())
    batches = iter(torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=sampler))
    for _ in range(first):
        next(batches)
    for step in range(first, STEPS):
        x, y, numbers = next(batches)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        record(step + 1, numbers)
        if (step + 1) % SAVE_EVERY == 0:
            with tempfile.TemporaryDirectory() as place:
                state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
                torch.save(state, Path(place) / "state.pt")
                kept = Checkpoint.from_directory(place) if context.get_world_rank() == 0 else None
                ray.train.report({}, checkpoint=kept)
    if context.get_world_rank() == 0:
        save_weights(model)


if __name__ == "__main__":
    ray.init(address=sys.argv[1])
    TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=(1, 2), elastic_resize_monitor_interval_s=2.0),
        run_config=RunConfig(storage_path=str(FOLDER / "ray"), failure_config=FailureConfig(max_failures=3)),
    ).fit()
