"""EasyScale's jobs and speeds: its public workload where it is at hand, else a seeded one on its published times."""

from pathlib import Path
from random import Random

from experiments.easyscale.published import FIGURE_12
from experiments.figure_context import FigureContext
from experiments.simulations import Scene

CLUSTER = "4x8:v100,2x8:p100,4x4:t4"
# published model -> (name in workloads, batch per worker, range of epochs)
APPLICATIONS = {
    "ResNet50": ("resnet50", 64, (20, 60)),
    "VGG19": ("vgg19", 32, (5, 20)),
    "YOLOv3": ("yolov3", 8, (100, 400)),
    "BERT": ("bert", 8, (40, 200)),
    "Electra": ("electra", 8, (40, 200)),
}
HEAD = "name,time,application,max_parallelism,batch_size,epochs,enable_heterogeneous_deterministic,preferred_gpu"
JOBS = 60
LAST_SUBMIT_S = 4800
D1 = 1  # place of level D1 among the published times


def find_scene(context: FigureContext, overhead: str, time_scale: float) -> tuple[Scene, tuple[str, ...]]:
    """The jobs on 32 V100, 16 P100 and 16 T4, with what must be said of them."""
    notes: tuple[str, ...] = ()
    path = context.sources.find_trace("workload")
    speeds = context.sources.profiles / "easyscale" if context.sources.profiles else None
    if path is None or speeds is None or not speeds.is_dir():
        path, speeds = draw_files(context.cache.folder / "easyscale")
        notes = (f"Synthetic workload ({JOBS} jobs, seed 0) on the paper's times of a mini-batch.",)
    scene = Scene(CLUSTER, path, profiles=speeds, overhead=overhead, time_scale=time_scale, last_of_duplicates=True)
    return scene, notes


def draw_files(folder: Path) -> tuple[Path, Path]:
    """A seeded workload and the published mini-batch times as files; returns the workload and the folder of times."""
    speeds = folder / "speeds"
    speeds.mkdir(parents=True, exist_ok=True)
    workload, table = folder / "workload.csv", speeds / "minibatch_seconds.csv"
    workload.write_text("\n".join([HEAD, *draw_rows()]) + "\n", encoding="utf-8")
    rows = [
        f"{name},{batch},{kind.lower()},{seconds[D1]}"
        for model, (name, batch, _) in APPLICATIONS.items()
        for kind, seconds in FIGURE_12[model].items()
    ]
    head = "application,batch_per_worker,device_type,seconds_per_minibatch"
    table.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return workload, speeds


def draw_rows() -> list[str]:
    """The jobs: mostly large, mostly preferring the fastest type, as in the published workload."""
    random = Random(0)
    submits = sorted(random.uniform(100, LAST_SUBMIT_S) for _ in range(JOBS))
    rows = []
    for number, submit_s in enumerate(submits):
        name, batch, (fewest, most) = APPLICATIONS[random.choice(sorted(APPLICATIONS))]
        workers = random.choices((4, 8, 16, 32), (1, 11, 18, 38))[0]
        preferred = random.choices(("v100", "p100", "t4"), (52, 13, 3))[0]
        rows.append(
            f"{name}-{number},{submit_s:.0f},{name},{workers},{batch},{random.randint(fewest, most)},1,{preferred}"
        )
    return rows
