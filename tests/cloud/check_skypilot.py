"""Gives our exported tasks to SkyPilot's own parser. Run by `make test-skypilot`, in an environment of its own:

    python tests/cloud/check_skypilot.py TASK.yaml...

Nothing is launched and no cloud is asked. Ends with 1 if a task is refused.
"""

import copy
import sys
from importlib import import_module

import yaml

sky = import_module("sky")  # only there in the environment of `make test-skypilot`


def check(path: str) -> None:
    """Parse every task of a file and compare what SkyPilot understood with what was written."""
    with open(path, encoding="utf-8") as lines:
        for config in yaml.safe_load_all(lines):
            task = sky.Task.from_yaml_config(copy.deepcopy(config))
            (resources,) = task.resources
            assert task.name == config["name"]
            assert task.num_nodes == config.get("num_nodes", 1)
            assert resources.instance_type == config["resources"]["instance_type"]
            assert resources.use_spot == config["resources"]["use_spot"]
            print(f"{path}: {task.name}: {task.num_nodes} x {resources.instance_type} accepted")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        check(name)
