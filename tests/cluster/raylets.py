"""A Ray cluster of raylets on this machine, in a process of its own: `python -m tests.cluster.raylets CPUS ...`.

Prints its address, then obeys its standard input: `add CPUS`, `kill PLACE`, `behead 0`, and its end. Run, not imported
by tests: importing Ray warns, and tests take warnings for errors.
"""

import json
import sys
from typing import Any

from ray.cluster_utils import Cluster

#: Ours needs none of it, and by default it is a third of the machine's memory.
STORE = {"object_store_memory": 80 << 20}


def main() -> None:
    """A head without work, and a raylet for each number of CPUs."""
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **STORE})
    nodes = [cluster.add_node(num_cpus=int(count), **STORE) for count in sys.argv[1:]]
    print(json.dumps({"address": cluster.address, "nodes": [node.unique_id for node in nodes]}), flush=True)
    for line in sys.stdin:
        word, number = line.split()
        if word == "add":
            nodes.append(cluster.add_node(num_cpus=int(number), **STORE))
        elif word == "behead":
            cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
        else:
            cluster.remove_node(nodes[int(number)], allow_graceful=False)
        print(json.dumps({"done": word}), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
