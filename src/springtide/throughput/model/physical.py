"""The physical form: a step is compute on the slowest device and a collective that partly hides behind it.

    T_gpu  = (a + c b) d(b)            affine in the local batch b; d is a smooth correction where batches were seen
    T_c    = T_gpu + h c b (g - 1)     g devices on the fullest node share its host
    T_s    = v_l 2(g-1)/g + l log2 g                          one node: bandwidth and latency inside it
           = v_n 2(K-1)/K (K/N)^w f2 + s log2 N               N nodes, K devices: the network; f2 only where N = 2
    T_step = (1 - o) T_c + ((o T_c)^k + T_s^k)^(1/k)          the share o of compute can hide the collective

The form follows 5.1 of the Srifty specification, changed where the leave-out error on both public clusters fell
(docs/decisions/040). Every parameter but the first is a scale-free ratio, so that what other models teach carries
over. Fitting is in `fits`, what to believe before fitting in `priors`.
"""

from dataclasses import dataclass, field

import numpy as np

from springtide.throughput.tables.points import Array, Columns, Sample

# Name -> what it is. The order is the order of the parameter vector.
PARAMETERS = (
    "compute",  # log of (a + c b_ref) over the measured step at the smallest count
    "fixed",  # logit of a / (a + c b_ref)
    "contention",  # log h
    "local",  # log of v_l over compute
    "local_latency",  # log of l / v_l
    "network",  # log of v_n / v_l
    "network_latency",  # log of s / v_n
    "density",  # w
    "pair",  # log f2
    "sharpness",  # logit of (k - 1) / 9
    "overlap",  # logit of o
)

MOST_KNOTS = 12
FEWEST_BATCHES = 4  # below, the affine line alone says as much as can be known
DRIFT_PER_OCTAVE = 0.06
LARGEST_CORRECTION = 0.3
ANCHOR = 0.02
TINY_S = 1e-12
FURTHEST = 40.0  # no ratio is e^40; beyond it only the arithmetic suffers


@dataclass(frozen=True)
class Reference:
    """The scale a parameter vector is relative to, and the batches where the compute line may bend."""

    batch: float
    step_s: float
    knots: Array = field(default_factory=lambda: np.empty(0))  # log batch, ascending

    @property
    def size(self) -> int:
        """Length of a parameter vector: the named ones, then one correction per knot."""
        return len(PARAMETERS) + len(self.knots)


def make_reference(sample: Sample) -> Reference:
    """The scale of a sample: its steps and batches at the smallest number of devices."""
    fewest = sample.at.devices == sample.at.devices.min()
    batch = float(np.exp(np.log(np.unique(sample.at.batch[fewest])).mean()))
    step_s = float(np.exp(sample.log_step[fewest].mean()))
    knots = np.unique(np.log(sample.at.batch))
    if len(knots) < FEWEST_BATCHES:
        knots = np.empty(0)
    elif len(knots) > MOST_KNOTS:
        knots = np.quantile(knots, np.linspace(0, 1, MOST_KNOTS))
    return Reference(batch, step_s, knots)


def predict_log_step(parameters: Array, reference: Reference, at: Columns) -> Array:
    """Log step seconds of each layout, for one parameter vector or a stack of them (one row each)."""
    table = np.clip(np.atleast_2d(parameters), -FURTHEST, FURTHEST)
    named = {name: table[:, i, None] for i, name in enumerate(PARAMETERS)}
    scale = reference.step_s * np.exp(named["compute"])
    compute = _predict_compute(named, scale, table[:, len(PARAMETERS) :], reference, at)
    sync = np.maximum(_predict_sync(named, scale, at), TINY_S)
    hidden = _logistic(named["overlap"])
    power = 1 + 9 * _logistic(named["sharpness"])
    step = (1 - hidden) * compute + _power_sum(hidden * compute, sync, power)
    logs: Array = np.log(step)
    return logs if np.ndim(parameters) == 2 else logs[0]


def smoothness_residuals(corrections: Array, reference: Reference) -> Array:
    """How far the batch corrections stray from none, in standard deviations: a random walk anchored at b_ref."""
    knots = reference.knots
    if not len(knots):
        return np.empty((*corrections.shape[:-1], 0))
    octaves = np.diff(knots) / np.log(2)
    drift = np.diff(corrections, axis=-1) / (DRIFT_PER_OCTAVE * np.sqrt(octaves))
    anchor = corrections @ _interpolation(np.array([np.log(reference.batch)]), knots).T / ANCHOR
    return np.concatenate([drift, anchor, corrections / LARGEST_CORRECTION], axis=-1)


def _predict_compute(
    named: dict[str, Array], scale: Array, corrections: Array, reference: Reference, at: Columns
) -> Array:
    fixed = _logistic(named["fixed"])
    growing = scale * (1 - fixed) * at.batch / reference.batch
    gpu = scale * fixed + growing
    if len(reference.knots):
        gpu = gpu * np.exp(corrections @ _interpolation(np.log(at.batch), reference.knots).T)
    contended: Array = gpu + np.exp(named["contention"]) * growing * (at.fullest - 1)
    return contended


def _predict_sync(named: dict[str, Array], scale: Array, at: Columns) -> Array:
    local_s = scale * np.exp(named["local"])
    network_s = local_s * np.exp(named["network"])
    inside = local_s * (2 * (at.fullest - 1) / at.fullest + np.exp(named["local_latency"]) * np.log2(at.fullest))
    ring = 2 * (at.devices - 1) / at.devices * (at.devices / at.nodes) ** named["density"]
    ring = np.where(at.nodes == 2, ring * np.exp(named["pair"]), ring)
    across = network_s * (ring + np.exp(named["network_latency"]) * np.log2(at.nodes))
    sync: Array = np.where(at.nodes > 1, across, inside)
    return sync


def _interpolation(at: Array, knots: Array) -> Array:
    """Weights of the knots for linear interpolation at each place, constant beyond both ends."""
    place = np.clip(np.interp(at, knots, np.arange(len(knots))), 0, len(knots) - 1)
    below = np.minimum(place.astype(int), len(knots) - 2)
    weights = np.zeros((len(at), len(knots)))
    rows = np.arange(len(at))
    weights[rows, below] = 1 - (place - below)
    weights[rows, below + 1] = place - below
    return weights


def _logistic(value: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-value))
    return result


def _power_sum(first: Array, second: Array, power: Array) -> Array:
    """(first^power + second^power)^(1/power), without overflow."""
    larger = np.maximum(first, second)
    total: Array = larger * (1 + (np.minimum(first, second) / larger) ** power) ** (1 / power)
    return total
