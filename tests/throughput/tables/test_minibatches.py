"""Tables of mini-batch seconds: what they hold, and what is said of what they lack."""

from pathlib import Path

import pytest

from springtide.errors import ProfileError
from springtide.throughput.heterogeneous import UNLIMITED
from springtide.throughput.tables.minibatches import Minibatches, find_minibatches, read_minibatches

HEADER = "application,batch_per_worker,device_type,seconds_per_minibatch"


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "seconds.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def read(tmp_path: Path, *rows: str, header: str = HEADER, time_scale: float = 1.0) -> Minibatches:
    return read_minibatches(write(tmp_path, header, *rows), time_scale)


def test_reads_seconds_by_type_and_stretches_them(tmp_path: Path) -> None:
    table = read(tmp_path, "net,8,V100,0.5", "net,8,t4,1.25", time_scale=2.0)
    speeds = table.speeds("net", 8, ("v100", "t4"))
    assert {kind: speed.seconds for kind, speed in speeds.items()} == {"v100": 1.0, "t4": 2.5}
    assert speeds["t4"].most_workers == UNLIMITED


def test_memory_limits_and_models_that_do_not_fit(tmp_path: Path) -> None:
    table = read(tmp_path, "net,8,v100,0.5,", "net,8,p100,0.5,4", "net,8,t4,,", header=HEADER + ",most_workers")
    speeds = table.speeds("net", 8, ("v100", "p100", "t4"))
    assert list(speeds) == ["v100", "p100"] and speeds["p100"].most_workers == 4


def test_a_missing_type_is_named_with_what_to_run(tmp_path: Path) -> None:
    table = read(tmp_path, "net,8,v100,0.5")
    with pytest.raises(ProfileError, match=r"no speed on device type 'h100'.*only on v100; run `springtide profile`"):
        table.speeds("net", 8, ("v100", "h100"))
    with pytest.raises(ProfileError, match=r"net has no mini-batch seconds for batch 4 .* it has for 8"):
        table.speeds("net", 4, ("v100",))
    with pytest.raises(ProfileError, match=r"'llama' has no mini-batch seconds in .* there are: net"):
        table.speeds("llama", 8, ("v100",))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("net,8,v100,-1", "line 2: seconds_per_minibatch '-1' must be a positive number"),
        ("net,eight,v100,1", "line 2: batch_per_worker 'eight'"),
        ("net,8,,1", "device_type '' must both be named"),
    ],
)
def test_rows_that_cannot_be_read(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        read(tmp_path, row)
    with pytest.raises(ProfileError, match="holds no row"):
        read(tmp_path)


def test_a_table_is_found_by_its_header(tmp_path: Path) -> None:
    assert find_minibatches(None) is None
    assert find_minibatches(tmp_path) is None
    (tmp_path / "other.csv").write_text("global_batch_size,1,2\n")
    assert find_minibatches(tmp_path) is None
    path = write(tmp_path, HEADER, "net,8,v100,0.5")
    assert find_minibatches(tmp_path) == find_minibatches(path) == path
