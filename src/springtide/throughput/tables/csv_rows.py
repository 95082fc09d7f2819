"""Rows of CSV files with where each stands, for errors that name the line. What the cells mean is not decided here."""

import csv
from collections.abc import Sequence
from pathlib import Path

from springtide.errors import InputError, ProfileError

Row = tuple[str, dict[str, str]]


def read_rows(
    path: Path, needed: Sequence[str] = (), error: type[InputError] = ProfileError, what: str = ""
) -> list[Row]:
    """The rows of a file, stripped, an absent cell as an empty one; every needed column must be there."""
    origin = f"{what} {path}".strip()
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            header = [name.strip() for name in reader.fieldnames or ()]
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise error(f"{origin}: cannot be read ({problem})") from None
    missing = [name for name in needed if name not in header]
    if missing:
        raise error(f"{origin}, line 1: missing column {', '.join(missing)}; needed are {','.join(needed)}")
    return [(f"{origin}, line {line}", _clean(row)) for line, row in rows]


def _clean(row: dict[str, str]) -> dict[str, str]:
    return {name.strip(): (value or "").strip() for name, value in row.items() if name}
