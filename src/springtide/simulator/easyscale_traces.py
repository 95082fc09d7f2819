"""EasyScale's workload files: jobs as numbers of logical workers, batches per worker and epochs.

One row per job: `name,time,application,max_parallelism,batch_size,epochs,enable_heterogeneous_deterministic,
preferred_gpu`; columns without a name are ignored, also where a row lacks them. Optional: `min_parallelism` (minP) and
`epoch_samples`. Reading the file and building the jobs belong to `traces` and `scenarios`.
"""

from collections.abc import Mapping, Sequence
from math import isfinite

from springtide.errors import TraceError
from springtide.simulator.csv_cells import CsvHeader, not_negative, positive, read_count, read_number, read_text
from springtide.simulator.scenarios import WorkerRequest

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "id": ("name",),
    "submit": ("time",),
    "model": ("application",),
    "workers": ("max_parallelism",),
    "batch": ("batch_size",),
    "epochs": ("epochs",),
    "mixes": ("enable_heterogeneous_deterministic",),
    "preferred": ("preferred_gpu",),
    "guaranteed": ("min_parallelism",),
    "epoch_samples": ("epoch_samples",),
}
REQUIRED = ("application", "max_parallelism", "epochs")

# samples per epoch in the published workload: 1 % of ImageNet, VOC 2007+2012, SQuAD 1.1 and MovieLens-20M (NeuMF)
EPOCH_SAMPLES = {
    "resnet50": 12_800.0,
    "vgg19": 12_800.0,
    "shufflenetv2": 12_800.0,
    "swintransformer": 12_800.0,
    "yolov3": 165.51,
    "bert": 886.41,
    "electra": 886.41,
    "ncf": 49_708.45,
}


def recognise(names: Sequence[str]) -> bool:
    """Whether a header is EasyScale's."""
    return set(REQUIRED) <= set(names)


def read_request(layout: CsvHeader, cells: Sequence[str], line: int) -> WorkerRequest:
    """What one row says of a job; its steps are epochs x samples per epoch / (batch x logical workers)."""
    last = max(position for position, _ in layout.positions.values())
    if not last < len(cells) <= layout.width:
        raise TraceError(f"row has {len(cells)} of the header's {layout.width} columns; it is cut off or malformed")
    application = read_text(*layout.cell(cells, "model"))
    workers, batch = read_count(*layout.cell(cells, "workers")), read_count(*layout.cell(cells, "batch"))
    samples = read_number(*layout.cell(cells, "epochs"), positive) * _count_samples(layout, cells, application)
    return WorkerRequest(
        id=layout.cell(cells, "id")[1] or f"line-{line}",
        submit_s=read_number(*layout.cell(cells, "submit"), not_negative),
        application=application,
        workers=workers,
        batch=batch,
        steps=samples / (batch * workers),
        mixes=read_number(*layout.cell(cells, "mixes"), _flag) != 0 if "mixes" in layout.positions else False,
        preferred=layout.cell(cells, "preferred")[1].lower(),
        guaranteed=_read_guaranteed(layout, cells, workers),
    )


def _flag(value: float) -> str:
    return "" if isfinite(value) and value >= 0 else "must be 0 (one device type) or another number (several)"


def _read_guaranteed(layout: CsvHeader, cells: Sequence[str], workers: int) -> int:
    column, text = layout.cell(cells, "guaranteed")
    guaranteed = 0 if text in ("", "0") else read_count(column, text)
    if guaranteed > workers:
        raise TraceError(f"{column} {guaranteed} (minP) exceeds max_parallelism {workers} (maxP); it must not")
    return guaranteed


def _count_samples(layout: CsvHeader, cells: Sequence[str], application: str) -> float:
    column, text = layout.cell(cells, "epoch_samples")
    if text:
        return read_number(column, text, positive)
    if application not in EPOCH_SAMPLES:
        known = ", ".join(EPOCH_SAMPLES)
        raise TraceError(f"application {application!r} has no known epoch; give {column}, or one of {known}")
    return EPOCH_SAMPLES[application]
