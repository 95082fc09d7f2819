"""The process of one study: a request on stdin, a document on stdout. Bounded in time and memory by itself."""

import json
import os
import resource
import sys
from typing import Any

from springtide.dashboard.studies.rental_study import RentalBody, run_rental
from springtide.dashboard.studies.simulation_runs import draw_simulation, run_simulation
from springtide.dashboard.studies.simulation_study import SimulationBody
from springtide.errors import SpringtideError

CPU_S = 90
MEMORY_BYTES = 4 << 30
NICENESS = 10


def study(kind: str, document: dict[str, Any]) -> dict[str, Any]:
    """The result of a study of some kind."""
    if kind == "simulation":
        return run_simulation(SimulationBody.model_validate(document))
    if kind == "picture":
        return draw_simulation(SimulationBody.model_validate(document))
    return run_rental(RentalBody.model_validate(document))


def main() -> None:
    """Answer one request, and end."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    request = json.load(sys.stdin)
    try:
        answer: dict[str, Any] = {"result": study(request["kind"], request["body"])}
    except SpringtideError as error:
        answer = {"refusal": str(error)}
    except MemoryError:
        answer = {"refusal": f"it needs more than {MEMORY_BYTES >> 30} GiB; make it smaller"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
