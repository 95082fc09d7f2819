"""What logical workers log within one global step, averaged over all of them and over all processes.

Logical worker 0 says which metrics a step has; rank 0 tells the others in the header of the step's broadcast, so that
every process takes part in the sum, or none does. Where a mean goes is the run's business.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from springtide.training.group.groups import Group
from springtide.training.reduction import gloo_order

Metric = float | torch.Tensor


class StepMetrics:
    """The metrics of this process's workers in the present step."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.rows: dict[int, dict[str, Metric]] = {}
        self.warn = warn
        self.has_warned = False

    def add(self, worker: int, metrics: Mapping[str, Metric]) -> None:
        """Keep what a worker logs; of a tensor the value, not the graph behind it."""
        row = self.rows.setdefault(worker, {})
        for name, value in metrics.items():
            row[name] = value.detach() if isinstance(value, torch.Tensor) else value

    @property
    def form(self) -> tuple[int, int]:
        """How many metrics logical worker 0 has logged, and a number that stands for their names."""
        return describe_names(self.rows.get(0, {}))

    def average(self, form: tuple[int, int], workers: int, group: Group | None, device: torch.device) -> dict[str, Any]:
        """Means over the workers that logged metrics of this form, added in their order; the step is then forgotten.

        Only the process of logical worker 0 has use for them. Workers that logged other names are left out, and told.
        """
        rows, self.rows = self.rows, {}
        self.tell_left_out({worker: row for worker, row in rows.items() if describe_names(row) != form})
        if not form[0]:
            return {}
        names = sorted(rows.get(0, {}))
        table = torch.zeros(workers, form[0] + 1, dtype=torch.float64, device=device)
        for worker, row in rows.items():
            if describe_names(row) == form:
                table[worker] = torch.tensor([*(float(row[name]) for name in sorted(row)), 1.0], dtype=torch.float64)
        if group is not None:
            group.all_reduce(table).wait()
        logged = [row for row in table.tolist() if row[-1]]
        return {name: sum(row[place] for row in logged) / len(logged) for place, name in enumerate(names)}

    def tell_left_out(self, rows: Mapping[int, Mapping[str, Metric]]) -> None:
        """Say, once, whose metrics are in no mean."""
        if not rows or self.has_warned:
            return
        self.has_warned = True
        logged = ", ".join(f"{worker} ({', '.join(sorted(row))})" for worker, row in sorted(rows.items()))
        self.warn(
            f"run.log: what logical worker{'s' if len(rows) > 1 else ''} {logged} logged is left out of the step's "
            "means, since logical worker 0 did not log the same names. Log the same ones in every turn, or keep values "
            "in a list and log run.mean(values) after the loop"
        )


def describe_names(names: Iterable[str]) -> tuple[int, int]:
    """How many names there are, and a checksum of them."""
    known = sorted(names)
    return len(known), zlib.crc32("\0".join(known).encode())


def gather_values(
    values: Sequence[torch.Tensor], local: Sequence[int], workers: int, group: Group | None
) -> torch.Tensor:
    """The sum of one value per logical worker, added in the order of an all-reduce on as many ranks."""
    if values[0].is_complex():
        numbers = [torch.view_as_real(value) for value in values]
        return torch.view_as_complex(gather_values(numbers, local, workers, group))
    first = values[0]
    # x + -0.0 has the bits of x for every x, so the sum over processes puts each row where it belongs.
    table = torch.full((workers, max(1, first.numel())), -0.0, device=first.device).to(first.dtype)
    for worker, value in zip(local, values, strict=True):
        table[worker] = value.reshape(-1)
    if group is not None:
        group.all_reduce(table).wait()
    return gloo_order.add_in_order(list(table)).reshape(first.shape)
