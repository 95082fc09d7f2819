"""A plain distributed script that knows nothing of us: adds the ranks up, as torchrun's variables say."""

import os
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
rank, size = dist.get_rank(), dist.get_world_size()
Path(os.environ["SPRINGTIDE_OUTPUT"], f"sum-{rank}").write_text(f"{total.item():g} of {size}")
dist.destroy_process_group()
