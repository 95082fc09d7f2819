"""Writes docs/probes.md from verdicts: `python -m tests.training.probes.probe_page VERDICTS.jsonl [AGAIN.jsonl]`.

The verdicts are what `probe_runner all` prints. Those of a further file stand for probes that were judged again after a
repair; the page names them.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.training.probes.probe_counts import COUNTS
from tests.training.probes.probe_in_place import IN_PLACE
from tests.training.probes.probe_lasting import LASTING
from tests.training.probes.probe_scripts import DATA, MODELS, REFUSED, STEPS
from tests.training.probes.probe_surroundings import DATA_FEATURES, SURROUNDINGS, WALKS
from tests.training.probes.probe_table import PROBES, LoopProbe
from tests.training.probes.probe_updates import AUTOGRAD, HELD, UPDATING

PAGE = Path(__file__).parents[3] / "docs" / "probes.md"
HEAD = """# Loop features: what a script's loop may do

{count} scripts with one feature each, called probes here (not the probes that measure speed). One is *equal* if final
weights, buffers, optimizer state, learning rates and what it keeps have the bits of a DDP script written by hand
(torch only, four gloo ranks) on 1, 3 and 4 processes, and in a run that goes from 4 to 1 to 3 processes and is killed
twice on the way; *equal on any size* where there is no such script, for the reason beside it;
*refused* if it ends with the sentence beside it, before anything is wrong. There is no fourth verdict:
`make test-probes` fails on any other, and on a run that does not end.

{equal} equal, {alone} equal on any size, {refused} refused. Written by
`python -m tests.training.probes.probe_runner all > verdicts.jsonl` and
`python -m tests.training.probes.probe_page verdicts.jsonl`.
"""
NAMED: dict[str, tuple[LoopProbe, ...]] = {
    "Loops, optimizers, gradients, models": tuple(PROBES),
    "Between steps": (*STEPS, *HELD),
    "What only a kill shows": LASTING,
    "Several models, compiled models": MODELS,
    "Autograd and layers": AUTOGRAD,
    "Optimizers and schedules": UPDATING,
    "What turns count": COUNTS,
    "What turns change in place": IN_PLACE,
    "Around the loader": WALKS,
    "Data": (*DATA, *DATA_FEATURES),
    "Processes, threads, switches": SURROUNDINGS,
}
GROUPS: dict[str, tuple[LoopProbe, ...]] = {
    **{title: tuple(probe for probe in probes if not probe.refused) for title, probes in NAMED.items()},
    "Refused": (*(probe for probes in NAMED.values() for probe in probes if probe.refused), *REFUSED),
}
LONGEST = 230


def write_row(probe: LoopProbe, row: dict[str, str]) -> str:
    """A line of a table."""
    lost = f"after a kill a warning says *{probe.told} ...*" if probe.told else ""
    said = " ".join(row.get("sentence", probe.alone or lost).split())
    cut = said if len(said) <= LONGEST else said[:LONGEST].rsplit(" ", 1)[0] + " ..."
    return f"| {probe.name} | {row['verdict']} | {cut.replace('|', chr(92) + '|')} |"


AGAIN = """
Not all verdicts are of one run. In the whole run these failed, or their script was changed since;
they were judged again alone: {names}.
"""


def write_page(rows: dict[str, dict[str, str]], again: Sequence[str]) -> str:
    """The page; a probe without a verdict is an error. Some may have been judged again."""
    verdicts = [row["verdict"] for row in rows.values()]
    names = ("equal", "equal on any size", "refused")
    equal, alone, refused = (verdicts.count(name) for name in names)
    parts = [HEAD.format(count=len(verdicts), equal=equal, alone=alone, refused=refused)]
    if again:
        parts[0] += AGAIN.format(names=", ".join(f"*{name}*" for name in again))
    for title, probes in GROUPS.items():
        lines = [write_row(probe, rows[probe.name]) for probe in probes]
        parts.append("\n".join((f"## {title}\n", "| Probe | Verdict | |", "|---|---|---|", *lines)) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    found = [json.loads(line) for file in sys.argv[1:] for line in Path(file).read_text().splitlines()]
    named = {row["name"]: row for row in found}
    PAGE.write_text(write_page(named, sorted(row["name"] for row in found[len(named) :])), encoding="utf-8")
