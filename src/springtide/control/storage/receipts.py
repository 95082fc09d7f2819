"""Receipts of finished jobs: what ran, on what, and the chain of its digests, sealed with a key of the server's.

The seal says that this server wrote the receipt, and can be checked by it alone: whoever has the key could have sealed
anything. That the bits are right is proved by training them again (`springtide verify --receipt`), not by a seal.
"""

import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from springtide.control.storage.job_outputs import OUTPUT, open_kept
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir, write_private
from springtide.core.durations import show_instant
from springtide.core.job_states import JobState
from springtide.core.receipt_format import SCHEMA, check_chain, digest_receipt
from springtide.errors import InputError, StateError
from springtide.executors.local.jobs.environment import CHAIN

MOST_BYTES = 16 << 20
ALGORITHM = "HMAC-SHA256"
SHOWN_DIGITS = 16
#: Held while the key is looked for and made: what was sealed with one that is replaced would never be known again.
MAKING = threading.Lock()


def make_receipt(state_dir: StateDir, record: JobRecord) -> dict[str, Any]:
    """The sealed receipt of a job that has succeeded."""
    if record.state is not JobState.SUCCEEDED:
        raise InputError(f"{record.name} is {record.state}; there is a receipt once a job has succeeded")
    lines = read_lines(state_dir, record)
    told = {
        "schema": SCHEMA,
        "job": {
            "id": record.id,
            "name": record.name,
            "user": record.user,
            "run": list(record.spec.words),
            "finished_at": None if record.finished_s is None else show_instant(record.finished_s),
        },
        "code_archive": record.archive,
        "chain": lines,
        "final": {"step": record.step, "weights_sha256": record.weights or None},
    }
    digest = digest_receipt(told)
    return {**told, "digest": digest, "seal": seal(state_dir, digest)}


def read_lines(state_dir: StateDir, record: JobRecord) -> list[dict[str, Any]]:
    """The chain that the job's processes wrote, which must be one."""
    try:
        with open_kept(state_dir, record.id, PurePosixPath(OUTPUT, CHAIN)).file as file:
            lines = [json.loads(line) for line in file.read(MOST_BYTES).splitlines()]
        check_chain(lines)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{record.name} left no chain of digests ({type(error).__name__}), so it has no receipt; jobs that call "
            "springtide.init have one, from this version on"
        ) from None
    if not lines:
        raise InputError(f"{record.name} left an empty chain of digests, so it has no receipt")
    return lines


def seal(state_dir: StateDir, digest: str) -> dict[str, str]:
    """The server's seal over a digest."""
    key = load_key(state_dir)
    mac = hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()
    return {"algorithm": ALGORITHM, "key": hashlib.sha256(key).hexdigest()[:SHOWN_DIGITS], "mac": mac}


def was_sealed_here(state_dir: StateDir, receipt: Mapping[str, Any]) -> bool:
    """Whether this server has sealed exactly this receipt."""
    digest = digest_receipt(receipt)
    told = receipt.get("seal")
    mac = told.get("mac") if isinstance(told, dict) else None
    known = seal(state_dir, digest)["mac"]
    if not isinstance(mac, str) or not mac.isascii():  # only such texts can be compared
        return False
    return receipt.get("digest") == digest and hmac.compare_digest(mac, known)


def load_key(state_dir: StateDir) -> bytes:
    """The key of this server's seals; made when it is first needed."""
    path = state_dir.root / "receipt.key"
    with MAKING:
        if not path.exists():
            write_private(path, secrets.token_hex(32))
    try:
        return bytes.fromhex(path.read_text())
    except (OSError, ValueError) as error:
        raise StateError(f"the key of receipts, {path}, cannot be read ({error}); restore it, or remove it") from None
