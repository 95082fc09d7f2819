"""A Ray cluster of two nodes with one CPU each, on this machine; nodes end and start as lines on standard input say."""

import subprocess
import sys
from typing import Any

from ray.cluster_utils import Cluster

HOST = "127.0.0.2"  # Ray takes 127.0.0.1 for "this machine", and gives its trainer an address nobody listens on


def start_node(cluster: Cluster) -> Any:
    """A node for one worker."""
    return cluster.add_node(num_cpus=1, node_ip_address=HOST, object_store_memory=80 << 20)


def main() -> None:
    """Train, and do what is said."""
    head = {"num_cpus": 0, "node_ip_address": HOST, "include_dashboard": False, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [start_node(cluster), start_node(cluster)]
    trainer = subprocess.Popen([sys.executable, sys.argv[1], cluster.address], stdin=subprocess.DEVNULL)
    for line in sys.stdin:
        if line == "kill\n":
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        elif line == "add\n":
            nodes.append(start_node(cluster))
    code = trainer.wait() if trainer.poll() is None else trainer.returncode
    cluster.shutdown()
    sys.exit(code)


if __name__ == "__main__":
    main()
