"""Leases of equal length and who holds them: the planning inside Chronus.

A claim asks for so many leases of a gang before a last one. `fill_backwards` is the quick test and the fallback plan;
`choose_first` decides the first lease by a mixed integer program. Neither knows of time, jobs or classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NODE_LIMIT = 200  # of branch and bound: unlike a time limit it gives the same answer on every machine
KEEP_BONUS = 0.05  # of a lease: among equals the job that runs stays

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """`leases` leases of `gang` devices, none after the first `last`; `leases_if_stopped` without the first one.

    A running job that is stopped pays a pause when it resumes, which may cost it one lease more.
    """

    gang: int
    leases: int
    last: int
    leases_if_stopped: int
    running: bool

    @property
    def feasible(self) -> bool:
        """Whether it can be kept by itself."""
        return self.leases <= self.last


def fill_backwards(claims: Sequence[LeaseClaim], devices: int) -> list[bool] | None:
    """Whether each claim holds the first lease if all are packed as late as can be; None if they do not all fit.

    Largest gangs first, then least slack, then the latest; each takes its last usable leases. O(claims * leases).
    """
    free = np.full(max((claim.last for claim in claims), default=0), devices)
    holds_first = [False] * len(claims)
    for position in sorted(range(len(claims)), key=lambda position: packing_order(claims[position])):
        claim = claims[position]
        if not claim.leases:
            continue
        usable = np.flatnonzero(free[: max(claim.last, 0)] >= claim.gang)
        if len(usable) < claim.leases:
            return None
        taken = usable[-claim.leases :]
        free[taken] -= claim.gang
        holds_first[position] = bool(taken[0] == 0)
    return holds_first


def packing_order(claim: LeaseClaim) -> tuple[int, int, int]:
    """The place of a claim when packing: gang, slack, last lease."""
    return -claim.gang, claim.last - claim.leases, -claim.last


def choose_first(claims: Sequence[LeaseClaim], devices: int, postpone: bool) -> list[bool] | None:
    """Which claims hold the first lease so that the most claims are kept; None if the solver finds no answer.

    Variables: x_j (holds the first lease) and s_j (is kept) binary; y_jk leases in interval k, the intervals being cut
    at the last leases of the claims. Later leases are planned anew when they come, so y may be fractional.
        sum_k y_jk + (stopped_j - leases_j + 1) x_j = stopped_j s_j,    0 <= y_jk <= length_k, only up to last_j
        sum_j gang_j y_jk <= devices * length_k,    sum_j gang_j x_j <= devices
        maximise  2 sum_j s_j  +- sum_j gang_j x_j / devices
    "+" fills the first lease; "-" (postpone) leaves it to others as far as the claims can wait.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # not at start-up: the import takes a while
    from scipy.sparse import csr_array

    cuts = np.unique([1, *(claim.last for claim in claims if claim.last > 1)])
    lengths = np.diff(cuts).astype(float)
    jobs, intervals = len(claims), len(lengths)
    rows, columns, values = _coefficients(claims, cuts)
    matrix = csr_array((values, (rows, columns)), shape=(jobs + 1 + intervals, 2 * jobs + jobs * intervals))
    lower = np.concatenate([np.zeros(jobs), np.full(1 + intervals, -np.inf)])
    upper = np.concatenate([np.zeros(jobs), [devices], devices * lengths])
    usable = np.array([[claim.last >= cut for cut in cuts[1:]] for claim in claims], dtype=float)
    highest = np.concatenate([np.ones(2 * jobs), (usable * lengths).ravel()])
    solution = milp(
        _costs(claims, devices, postpone, jobs * intervals),
        integrality=np.concatenate([np.ones(2 * jobs), np.zeros(jobs * intervals)]),
        bounds=Bounds(np.zeros(len(highest)), highest),
        constraints=LinearConstraint(matrix, lower, upper),
        options={"node_limit": NODE_LIMIT, "mip_rel_gap": 1e-4},
    )
    return None if solution.x is None else [bool(value > 0.5) for value in solution.x[:jobs]]


def _coefficients(claims: Sequence[LeaseClaim], cuts: NDArray[np.int64]) -> tuple[list[int], list[int], list[float]]:
    """Rows, columns and values of the constraints; columns are x, then s, then y by job and interval."""
    jobs, intervals = len(claims), len(cuts) - 1
    entries: list[tuple[int, int, float]] = []
    for job, claim in enumerate(claims):
        entries.append((job, job, claim.leases_if_stopped - claim.leases + 1.0))
        entries.append((job, jobs + job, -float(claim.leases_if_stopped)))
        entries.append((jobs, job, float(claim.gang)))
        for interval in range(int(np.searchsorted(cuts, claim.last, side="right")) - 1):
            column = 2 * jobs + job * intervals + interval
            entries.append((job, column, 1.0))
            entries.append((jobs + 1 + interval, column, float(claim.gang)))
    rows, columns, values = zip(*entries, strict=True)
    return list(rows), list(columns), list(values)


def _costs(claims: Sequence[LeaseClaim], devices: int, postpone: bool, others: int) -> Floats:
    """What the program minimises: minus two per kept claim, and the first lease filled or left."""
    gangs = np.array([claim.gang for claim in claims]) / devices
    running = np.array([claim.running for claim in claims])
    first = (gangs if postpone else -gangs) - KEEP_BONUS * gangs * running
    return np.concatenate([first, np.full(len(claims), -2.0), np.zeros(others)])
