"""Renders docs/papers.md from claims.toml, every claim beside its published value.

    python -m experiments.papers

The page is never edited by hand; a test fails when it and the claims disagree.
"""

import argparse
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from springtide.errors import InputError

CLAIMS = Path(__file__).parent / "claims.toml"
PAPERS = {
    "elasticflow": "ElasticFlow (ASPLOS 2023)",
    "easyscale": "EasyScale (SC 2023)",
    "srifty": "Srifty (MLSys 2022)",
    "springtide": "Springtide's own",
}
INTRODUCTION = """# What the papers claim, and what we measured

Rendered from `experiments/claims.toml` by `python -m experiments.papers`; do not edit.
Every number of ours was measured by the command beside it on the day beside it.
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """One number that someone published, or a bar that we set, and what we measured."""

    id: str
    paper: str
    what: str
    published: str
    ours: str
    command: str
    date: str
    note: str = ""


def read_claims(path: Path = CLAIMS) -> list[Claim]:
    """Every claim of the file, in its order."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("claim", [])
    claims = [_read_claim(number, entry) for number, entry in enumerate(entries, start=1)]
    seen: set[str] = set()
    for claim in claims:
        if claim.id in seen:
            raise InputError(f"claim {claim.id!r} is there twice; ids must be unique")
        seen.add(claim.id)
    return claims


def _read_claim(number: int, entry: dict[str, Any]) -> Claim:
    name = entry.get("id", f"number {number}")
    known = [field.name for field in fields(Claim)]
    unknown = sorted(set(entry) - set(known))
    missing = [key for key in known if key != "note" and key not in entry]
    if unknown or missing:
        raise InputError(f"claim {name}: lacks {missing}, has unknown {unknown}; the keys are {', '.join(known)}")
    if entry["paper"] not in PAPERS:
        raise InputError(f"claim {name}: paper {entry['paper']!r} is none of {', '.join(PAPERS)}")
    return Claim(**{key: str(value) for key, value in entry.items()})


def render(claims: Sequence[Claim]) -> str:
    """The page: one table per paper, notes and commands below it."""
    parts = [INTRODUCTION]
    for paper, title in PAPERS.items():
        mine = [claim for claim in claims if claim.paper == paper]
        if mine:
            parts.append(_render_paper(title, mine))
    return "\n".join(parts)


def _render_paper(title: str, claims: Sequence[Claim]) -> str:
    lines = [f"## {title}", "", "| What | Published | Ours | Command | Date |", "|---|---|---|---|---|"]
    for claim in claims:
        cells = (claim.what, claim.published, claim.ours, f"`{claim.command}`", claim.date)
        lines.append("| " + " | ".join(_escape(cell) for cell in cells) + " |")
    notes = [f"- *{claim.what}*: {' '.join(claim.note.split())}" for claim in claims if claim.note]
    return "\n".join([*lines, "", *notes, ""] if notes else [*lines, ""])


def _escape(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/papers.md"))
    args = parser.parse_args()
    args.output.write_text(render(read_claims()), encoding="utf-8")
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
