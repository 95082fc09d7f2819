"""What a change of devices costs in the simulator, by name.

`elasticflow`, the default, is the cost model of the ElasticFlow simulator without its restarts and its cache of
process groups; `none` and `constant:SECONDS` are for ablations. Every policy is charged alike.
"""

from math import isfinite

from springtide.core.jobs import FREE, Overhead
from springtide.errors import InputError

LARGE_CLUSTER = 256  # devices from which on ElasticFlow charges the larger base
NAMES = "elasticflow, none, constant:SECONDS"


def parse_overhead(text: str, devices: int) -> Overhead:
    """The overhead that a name stands for on a cluster of so many devices.

    elasticflow: pause(g) = base + 2 * (log2 g + 1) s; base = 2 s below 256 devices, else 7 s (ElasticFlow artifact).
    """
    if text == "none":
        return FREE
    if text == "elasticflow":
        return Overhead(base_s=2.0 if devices < LARGE_CLUSTER else 7.0, per_doubling_s=2.0)
    name, _, seconds = text.partition(":")
    if name == "constant":
        return Overhead(base_s=_parse_seconds(text, seconds))
    raise InputError(f"unknown overhead {text!r}; there are: {NAMES}")


def _parse_seconds(whole: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds < 0 or not isfinite(seconds):
        raise InputError(f"overhead {whole!r}: {text!r} must be a number of seconds, 0 or more, as in constant:30")
    return seconds
