"""Folders of `save_state`, which come into being whole: a kill while one is written must not be in a later start's way.

Files are written beside the folder and renamed. Where there is a folder of that name already, each of its files is
replaced at once, and what else lies in it stays, as in a stock run.
"""

import os
import shutil
from pathlib import Path

from springtide.errors import JobError

STATES = "random_states_*.pkl"


def find_part(folder: Path) -> Path:
    """Where the files of a folder are written until all are there."""
    return folder.with_name(f".{folder.name}.part")


def put_in_place(part: Path, folder: Path) -> None:
    """Give a whole folder its name."""
    if not folder.exists():
        part.rename(folder)
        return
    for file in sorted(one for one in part.rglob("*") if one.is_file()):
        place = folder / file.relative_to(part)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, place)
    shutil.rmtree(part)


def check_ranks(folder: Path, logical_workers: int) -> None:
    """Refuse a folder of another number of ranks: a logical worker's random state would have to be made up."""
    found = len(list(folder.glob(STATES)))
    if found != logical_workers:
        raise JobError(
            f"{folder} was saved by {found} ranks, the run has {logical_workers} logical workers; load it with "
            f"springtide.init(logical_workers={found or 'N'})"
        )
