"""Gives our exported tasks to SkyPilot's own parser. Run by `make test-skypilot`, in an environment of its own:

    HOME=FOLDER python tests/cloud/check_skypilot.py TASK.yaml...

SkyPilot checks machines against its catalog, which it would fetch: ours is put in its place, so that nothing but the
packages comes from the network. Nothing is launched and no cloud is asked. Ends with 1 if a task is refused.
"""

import copy
import csv
import sys
from importlib import import_module
from pathlib import Path

import yaml

DATA = Path(__file__).parents[2] / "src" / "springtide" / "cloud" / "data"
COLUMNS = (
    *("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo"),
    *("Price", "SpotPrice", "Region", "AvailabilityZone"),
)


def write_catalogs(folder: Path) -> None:
    """Our machines and prices as SkyPilot's catalog of each cloud, and empty tables of images."""
    with (DATA / "machines.csv").open(newline="", encoding="utf-8") as lines:
        machines = {(row["cloud"], row["instance_type"]): row for row in csv.DictReader(lines)}
    with (DATA / "prices.csv").open(newline="", encoding="utf-8") as lines:
        prices = list(csv.DictReader(lines))
    for cloud in sorted({row["cloud"] for row in prices}):
        (folder / cloud).mkdir(parents=True, exist_ok=True)
        with (folder / cloud / "vms.csv").open("w", newline="", encoding="utf-8") as lines:
            writer = csv.writer(lines)
            writer.writerow(COLUMNS)
            for price in prices:
                if price["cloud"] == cloud:
                    writer.writerow(describe(machines[cloud, price["instance_type"]], price))
        (folder / cloud / "images.csv").write_text("Tag,Region,OS,OSVersion,ImageId,CreationDate\n", encoding="utf-8")


def describe(machine: dict[str, str], price: dict[str, str]) -> tuple[str, ...]:
    """A row of SkyPilot's catalog."""
    size = (machine["vcpus"], machine.get("memory_gib") or "64", "")
    prices = (price["on_demand_usd_per_h"], price["spot_usd_per_h"], price["region"], f"{price['region']}a")
    return (machine["instance_type"], machine["device_type"], machine["devices"], *size, *prices)


def check(sky: object, path: str) -> None:
    """Parse every task of a file and compare what SkyPilot understood with what was written."""
    with open(path, encoding="utf-8") as lines:
        for config in yaml.safe_load_all(lines):
            task = sky.Task.from_yaml_config(copy.deepcopy(config))  # type: ignore[attr-defined]
            (resources,) = task.resources
            assert task.name == config["name"]
            assert task.num_nodes == config.get("num_nodes", 1)
            wanted = config["resources"]
            assert resources.instance_type == wanted.get("instance_type")
            assert resources.use_spot == wanted.get("use_spot", False)
            if "accelerators" in wanted:
                assert [f"{kind}:{count}" for kind, count in resources.accelerators.items()] == [wanted["accelerators"]]
            mounts = config.get("file_mounts", {})
            assert set(task.storage_mounts) == {place for place, source in mounts.items() if isinstance(source, dict)}
            assert set(task.file_mounts or {}) == {place for place, source in mounts.items() if isinstance(source, str)}
            print(f"{path}: {task.name}: {task.num_nodes} x {resources.instance_type} accepted")


if __name__ == "__main__":
    constants = import_module("sky.skylet.constants")  # only there in the environment of `make test-skypilot`
    write_catalogs(Path(constants.CATALOG_DIR).expanduser() / constants.CATALOG_SCHEMA_VERSION)
    for name in sys.argv[1:]:
        check(import_module("sky"), name)
