"""What ElasticFlow published, figure by figure: typed in from its paper, plot scripts and logs, never computed.

Where the published code was run again (docs/baselines.md), the value it really gives is used and `plotted` is False.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Value(NamedTuple):
    """A share of deadlines met, and whether it is only known from a plot."""

    dsr: float
    plotted: bool = False


FIGURE_6A = {
    "edf": 0.08,
    "gandiva": 0.24,
    "tiresias": 0.32,
    "themis": 0.28,
    "chronus": 0.40,
    "pollux": 0.32,
    "elasticflow": 0.64,
}
FIGURE_6B = {
    "edf": 0.0872,
    "gandiva": 0.2103,
    "tiresias": 0.4564,
    "themis": 0.3897,
    "chronus": 0.4103,
    "elasticflow": 0.6667,
}
FIGURE_8A: Mapping[str, Value] = {
    "edf": Value(0.118),
    "gandiva": Value(0.092),
    "tiresias": Value(0.287),
    "themis": Value(0.312, True),
    "chronus": Value(0.262, True),
    "pollux": Value(0.523, True),
    "elasticflow": Value(0.718),
}
# trace -> policy -> value, at the sizes that the published scripts set
FIGURE_8B: Mapping[str, Mapping[str, Value]] = {
    "cluster01": {
        "edf": Value(0.187),
        "gandiva": Value(0.162),
        "tiresias": Value(0.493),
        "themis": Value(0.464, True),
        "chronus": Value(0.474, True),
        "elasticflow": Value(0.788, True),
    },
    "cluster02": {
        "edf": Value(0.228, True),
        "gandiva": Value(0.286, True),
        "tiresias": Value(0.470, True),
        "themis": Value(0.431, True),
        "chronus": Value(0.445, True),
        "elasticflow": Value(0.822, True),
    },
    "cluster08": {
        "edf": Value(0.252, True),
        "gandiva": Value(0.325, True),
        "tiresias": Value(0.373, True),
        "themis": Value(0.423, True),
        "chronus": Value(0.447, True),
        "elasticflow": Value(0.896, True),
    },
    "cluster10": {
        "edf": Value(0.777),
        "gandiva": Value(0.331),
        "tiresias": Value(0.477),
        "themis": Value(0.431, True),
        "chronus": Value(0.454, True),
        "elasticflow": Value(0.962),
    },
    "philly_103959": {
        "edf": Value(0.436),
        "gandiva": Value(0.413),
        "tiresias": Value(0.466),
        "themis": Value(0.33, True),
        "chronus": Value(0.324, True),
        "elasticflow": Value(0.910),
    },
    # Not at hand here; as plotted, so that whoever has the whole set of traces sees them.
    "cluster03": {
        "edf": Value(0.103),
        "gandiva": Value(0.332),
        "tiresias": Value(0.431),
        "themis": Value(0.389, True),
        "chronus": Value(0.426, True),
        "elasticflow": Value(0.455, True),
    },
    "cluster04": {
        "edf": Value(0.007, True),
        "gandiva": Value(0.228, True),
        "tiresias": Value(0.120, True),
        "themis": Value(0.432, True),
        "chronus": Value(0.450, True),
        "elasticflow": Value(0.631, True),
    },
    "cluster05": {
        "edf": Value(0.375, True),
        "gandiva": Value(0.249),
        "tiresias": Value(0.482),
        "themis": Value(0.430, True),
        "chronus": Value(0.453, True),
        "elasticflow": Value(0.832, True),
    },
    "cluster06": {
        "edf": Value(0.108),
        "gandiva": Value(0.392),
        "tiresias": Value(0.482),
        "themis": Value(0.425, True),
        "chronus": Value(0.432, True),
        "elasticflow": Value(0.638),
    },
    "cluster07": {
        "edf": Value(0.046, True),
        "gandiva": Value(0.351, True),
        "tiresias": Value(0.346, True),
        "themis": Value(0.437, True),
        "chronus": Value(0.460, True),
        "elasticflow": Value(0.665, True),
    },
    "cluster09": {
        "edf": Value(0.800, True),
        "gandiva": Value(0.329, True),
        "tiresias": Value(0.468, True),
        "themis": Value(0.456, True),
        "chronus": Value(0.466, True),
        "elasticflow": Value(0.938, True),
    },
}
# devices -> policy -> share, as plotted
FIGURE_9: Mapping[int, Mapping[str, float]] = {
    64: {"edf": 0.026, "edf-admission": 0.203, "edf-elastic": 0.452, "elasticflow": 0.926},
    128: {"edf": 0.118, "edf-admission": 0.326, "edf-elastic": 0.835, "elasticflow": 0.949},
    256: {"edf": 0.118, "edf-admission": 0.658, "edf-elastic": 0.939, "elasticflow": 0.944},
}
# policy -> (share met, makespan h, mean JCT s, cluster efficiency), from its shipped logs
FIGURE_10: Mapping[str, tuple[float, float, float, float]] = {
    "edf": (0.92, 377.0, 63_300.0, 0.054),
    "gandiva": (0.79, 206.0, 63_900.0, 0.101),
    "tiresias": (1.0, 206.0, 51_000.0, 0.099),
    "themis": (0.99, 206.0, 51_200.0, 0.099),
    "elasticflow": (1.0, 182.0, 24_300.0, 0.112),
}
# policy -> share met at 10, 20, ... 90 % best-effort jobs
FIGURE_11: Mapping[str, tuple[float, ...]] = {
    "edf": (0.09, 0.10, 0.15, 0.15, 0.23, 0.28, 0.44, 0.79, 0.95),
    "gandiva": (0.25, 0.24, 0.20, 0.18, 0.19, 0.17, 0.18, 0.18, 0.16),
    "tiresias": (0.46, 0.46, 0.44, 0.42, 0.43, 0.41, 0.44, 0.50, 0.53),
    "themis": (0.41, 0.40, 0.37, 0.34, 0.36, 0.34, 0.35, 0.42, 0.37),
    "chronus": (0.42, 0.42, 0.40, 0.37, 0.40, 0.39, 0.42, 0.50, 0.53),
    "elasticflow": (0.74, 0.67, 0.67, 0.69, 0.68, 0.76, 0.82, 0.92, 0.95),
}
# its best-effort completion time over Gandiva's, at the same mixtures; only ElasticFlow's series is known in full
FIGURE_11_JCT = (1.60, 1.37, 1.18, 1.11, 1.27, 1.24, 1.19, 1.16, 1.31)
# seconds to profile a model over all counts and batches
FIGURE_12A = {
    "resnet50": 550.0,
    "vgg16": 550.0,
    "inceptionv3": 367.0,
    "gpt2": 336.0,
    "bert": 305.0,
    "deepspeech2": 338.0,
}
# change -> seconds, least and most over its models
FIGURE_12B = {
    "1 to 2": (1.8, 3.9),
    "2 to 1": (1.1, 3.1),
    "8 to 16": (1.7, 4.2),
    "16 to 8": (1.7, 4.2),
    "migrate 8": (0.7, 3.2),
}
