"""Ranks read from the environment: a share of the data by one is refused, any other use is told, or harmless."""

from collections.abc import Callable
from typing import Any

import pytest

from springtide.errors import JobError
from springtide.training.group.rank_reads import RankNames, check_reads, find_shares

READ = "import os\nrank = int(os.environ.get('RANK', 0))\nworld = int(os.environ.get('WORLD_SIZE', 1))\n"
PAIR = "import os\nrank, world = int(os.getenv('RANK', '0')), int(os.getenv('WORLD_SIZE', '1'))\n"
SHARES = [
    READ + "files = list(range(12))[rank::world]",
    PAIR + "files = list(range(12))[rank::world]",
    READ + "files = [one for place, one in enumerate(range(12)) if place % world == rank]",
    READ + "per = 12 // world\nfiles = list(range(12))[rank * per : (rank + 1) * per]",
    READ + "files = list(range(12))\nif world > 1:\n    files = files[rank::world]",
    READ.replace("rank =", "me =").replace("world =", "ranks =") + "files = list(range(12))[me::ranks]",
    READ + "files = [one for one in range(12) if rank == one % world]",
    READ + "files = [one for one in range(12) if not rank != (one + 1) % world]",
    READ + "files = [one for one in range(12) if (one - rank) % world == 0]",
]
HARMLESS = [
    READ + "if rank == 0: print('main')\nlr = 0.1 * world",
    PAIR + "print(f'{rank} of {world}')\nshown = [step for step in range(8) if step % world == 0]",
    READ + "seed = 7 * world + rank",
    READ + "switch = len('no') > 9\nif switch:\n    files = list(range(12))[rank::world]",
    READ + "switch = len('no') > 9\nfiles = (\n    list(range(12))[rank::world]\n    if switch\n    else [1]\n)",
    READ + "if rank > 0:\n    files = list(range(12))[rank:]",
    READ + "print('rank %d of %d' % (rank, world))",
    READ + "batch = 8\nassert batch % world == 0, f'[rank {rank}] {batch} is no multiple of {world}'",
    READ + "batch = 8\nif rank == 0 and batch % world != 0: raise ValueError(batch)",
    READ + "name = 'a long name'\nprint(f'{rank}/{world} {name[:8]}')",
    READ + "names = ['a name'] * 4\nprint(f'{rank}/{world} {names[rank][:8]}')",
    READ + "def log(msg): print('[%d/%d] %s' % (rank, world, msg))",
    READ + "seed = (7 + rank) % world",
]


def run_script(text: str, data: Any = None) -> list[str]:
    """What is said of a script that prepares."""
    said: list[str] = []
    space = {"check": lambda: check_reads(data, said.append), "__name__": "script"}
    exec(compile(f"{text}\ncheck()", "script.py", "exec"), space)
    return said


@pytest.mark.parametrize("text", SHARES)
def test_a_share_by_a_rank_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(JobError, match=r"script.py:\d+ takes a share of something by .* Give run.prepare all data"):
        run_script(text)


@pytest.mark.parametrize("text", SHARES)
def test_a_share_of_one_is_the_whole(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it was read before springtide.init has told the number of logical workers."""
    monkeypatch.setenv("WORLD_SIZE", "1")
    (said,) = run_script(text)
    assert "script.py:" in said and "run.is_main" in said


@pytest.mark.parametrize("text", HARMLESS)
def test_other_uses_are_told(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    (said,) = run_script(text)
    assert "reads a rank from the environment" in said


def split(files: list[str], rank: int, world: int) -> tuple[int, list[str]]:
    return world, files[rank:world]


def keep(files: list[str], rank: int, world: int) -> list[object]:
    return [(one, rank == one % world) for one in range(len(files))]


def compare(one: int, rank: int, world: int) -> tuple[int, bool]:
    return one, rank == one % world


@pytest.mark.parametrize("function", [split, keep, compare])
def test_a_share_of_local_variables_is_found(function: Callable[..., object]) -> None:
    """Later Pythons load two of these at once."""
    assert [share.ranks for share in find_shares(function.__code__, RankNames())] == [("rank",)]


def show(names: list[str], rank: int, world: int) -> list[object]:
    return [rank, world, names[rank][:8], len(names) % world == 0]


def test_a_text_with_a_rank_is_no_share() -> None:
    assert list(find_shares(show.__code__, RankNames())) == []


class Rows:
    """Data that give every fourth row."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size

    def list_rows(self) -> list[int]:
        return [row for row in range(12) if row % self.world_size == self.rank]


def test_data_that_split_themselves_are_refused() -> None:
    with pytest.raises(JobError, match=r"test_rank_reads.py:\d+ takes a share"):
        run_script("", Rows(0, 4))
    assert run_script("", Rows(0, 1)) == []


def test_a_script_without_a_rank_is_not_spoken_to() -> None:
    assert run_script("import os\nhome = os.environ.get('HOME')\nworld = int(os.environ.get('WORLD_SIZE', 1))") == []
