"""Folders of `save_state`, which come into being whole: a kill while one is written must not be in a later start's way.

Files are written beside the folder and renamed. Where there is a folder of that name already, its files are replaced
one by one, and what else lies in it stays, as in a stock run. If a kill has left some that are still to be replaced,
they are when the folder is loaded or saved next: `load_state` never brings files of two states.
"""

import os
import shutil
from pathlib import Path

from springtide.errors import JobError

STATES = "random_states_*.pkl"


def find_part(folder: Path) -> Path:
    """Where the files of a folder are written until all are there."""
    return folder.with_name(f".{folder.name}.part")


def find_whole(folder: Path) -> Path:
    """Where the files of a whole state lie that are still to replace those in its folder."""
    return folder.with_name(f".{folder.name}.whole")


def put_in_place(part: Path, folder: Path) -> None:
    """Give a whole folder its name."""
    complete(folder)
    part.rename(find_whole(folder) if folder.exists() else folder)
    complete(folder)


def complete(folder: Path) -> None:
    """Replace what is left to be replaced; if somebody has deleted the folder since, there is nothing to complete."""
    whole = find_whole(folder)
    for file in sorted(one for one in whole.rglob("*") if one.is_file() and folder.exists()):
        place = folder / file.relative_to(whole)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, place)
    shutil.rmtree(whole, ignore_errors=True)


def check_ranks(folder: Path, logical_workers: int) -> None:
    """Refuse a folder of another number of ranks: a logical worker's random state would have to be made up."""
    found = len(list(folder.glob(STATES)))
    if found != logical_workers:
        raise JobError(
            f"{folder} was saved by {found} ranks, the run has {logical_workers} logical workers; load it with "
            f"springtide.init(logical_workers={found or 'N'})"
        )
