"""What a receipt is made of, for those who write, seal and check one: the chain of a run, and the digest of the whole.

A line of a chain holds the SHA-256 over the line before and the rest of itself, so that none can be changed, left out
or put in unnoticed. Pure; what is in a line says `training.state.state_chain`, how a receipt is sealed the server.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from springtide.errors import InputError

SCHEMA = 1
#: Fields of a receipt that its digest is not over.
OUTSIDE = ("digest", "seal")
MOST_ON = 200
#: What may stand in `Verification.on`, which others read in a sentence: counts of processes and names of devices.
ON = re.compile(r"[A-Za-z0-9 ,.+()/_-]+")


@dataclass(frozen=True, slots=True)
class Verification:
    """That somebody has trained what a receipt is of again, and what came of it."""

    holds: bool
    #: How many digests were compared, and at which steps.
    digests: int
    first_step: int
    last_step: int
    #: The step after which the state was another; None if it was the same, or something else was run.
    first_difference: int | None
    #: The devices it was trained on, and how many processes.
    on: str

    @property
    def sentence(self) -> str:
        """What was found, without who."""
        span = (
            f"{self.digests} digest{'' if self.digests == 1 else 's'} from step {self.first_step} to {self.last_step}"
        )
        where = f"trained again on {self.on}"
        if self.holds:
            return f"its receipt holds: {where}, {span} are the same"
        if self.first_difference is None:
            return f"its receipt was put to the proof with other code, data or settings ({where}, {span} compared)"
        return f"its receipt does NOT hold: {where}, the state after step {self.first_difference} is another"


def write_canonical(content: Mapping[str, Any]) -> str:
    """The one text of a document, whatever the order of its keys."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def hash_line(before: str, content: Mapping[str, Any]) -> str:
    """The hash that a line of this content has after another; `chain` itself is not part of it."""
    plain = {key: value for key, value in content.items() if key != "chain"}
    return hashlib.sha256((before + write_canonical(plain)).encode()).hexdigest()


def check_chain(lines: Sequence[Mapping[str, Any]]) -> None:
    """Raise at the first line that does not follow from the one before."""
    before = ""
    for number, line in enumerate(lines, 1):
        if line.get("chain") != hash_line(before, line):
            raise InputError(
                f"line {number} of the receipt's chain does not follow from the one before; it was changed"
            )
        before = line["chain"]


def digest_receipt(receipt: Mapping[str, Any]) -> str:
    """The SHA-256 of all that a receipt says."""
    told = {key: value for key, value in receipt.items() if key not in OUTSIDE}
    return hashlib.sha256(write_canonical(told).encode()).hexdigest()


def read_receipt(text: str, name: str) -> dict[str, Any]:
    """A receipt whose digest and chain are right; refused where they are not."""
    try:
        receipt = json.loads(text)
        if receipt["schema"] != SCHEMA:
            raise ValueError(f"its schema is {receipt['schema']}, this version reads {SCHEMA}")
        lines, told = receipt["chain"], receipt["digest"]
        receipt["job"]["run"], lines[0]["facts"], lines[0]["environment"]
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{name} is not a receipt of a finished job ({type(error).__name__}: {error})") from None
    check_chain(lines)
    if told != digest_receipt(receipt):
        raise InputError(f"{name} does not have the digest that it names; it was changed after it was written")
    return dict(receipt)


def list_links(receipt: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Steps with the digests of the state after them, in order; a step that was resumed from counts like any other."""
    yield from ((int(line["step"]), str(line["state"])) for line in receipt["chain"] if "state" in line)
