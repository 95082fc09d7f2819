"""Fills the object store of every node of a Ray cluster: `python -m tests.cluster.hoard ADDRESS`; holds it until its
standard input ends. Run, not imported by tests."""

import json
import sys
from typing import Any

import numpy as np
import ray as untyped_ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray: Any = untyped_ray
PIECE, MOST = 1 << 20, 100


class Hoard:
    """What holds one node's store."""

    def fill(self) -> bool:
        """Put things there until there is no room; whether that was reached."""
        self.held = []
        for _ in range(MOST):
            try:
                self.held.append(ray.put(np.zeros(PIECE)))
            except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError):
                return True
        return False


def main() -> None:
    """Fill all, and say whether they are full."""
    ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
    places = [NodeAffinitySchedulingStrategy(row["NodeID"], soft=False) for row in ray.nodes() if row["Alive"]]
    hoards = [ray.remote(Hoard).options(num_cpus=0, scheduling_strategy=place).remote() for place in places]
    print(json.dumps(ray.get([hoard.fill.remote() for hoard in hoards])), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
