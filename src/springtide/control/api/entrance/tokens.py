"""Who somebody is, by the token that they send: made here, stored as a hash.

A token is 256 random bits, so its plain SHA-256 is safe at rest. Comparison takes the same time wherever it fails.
"""

import getpass
import hashlib
import hmac
import os
import pwd
import secrets

from springtide.control.storage.records import UserRecord
from springtide.control.storage.state_dir import StateDir, write_private
from springtide.control.storage.store import Store
from springtide.errors import InputError, StateError

SHORTEST_TOKEN = 20


def make_token() -> str:
    """A new token."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def find_user(store: Store, token: str) -> UserRecord | None:
    """The user a token belongs to; an empty one belongs to nobody, whatever is stored."""
    if not token:
        return None
    wanted = hash_token(token)
    found = None
    for user in store.users():
        if hmac.compare_digest(user.token_hash, wanted):
            found = user
    return found


def ensure_owner(store: Store, state_dir: StateDir) -> UserRecord:
    """The owner of the state directory as an admin, with a token in a file that only they can read."""
    if not state_dir.token.exists() or not state_dir.token.read_text().strip():
        write_private(state_dir.token, make_token() + "\n")  # an empty one would let everybody in
    state_dir.token.chmod(0o600)
    token = state_dir.token.read_text().strip()
    if len(token) < SHORTEST_TOKEN:
        raise StateError(
            f"the token in {state_dir.token} has {len(token)} characters, fewer than {SHORTEST_TOKEN}: it could be "
            "guessed; remove the file, and the server writes a new one"
        )
    return find_user(store, token) or store.put_user(UserRecord(find_login(), hash_token(token), admin=True))


def check_run_as(name: str | None) -> None:
    """Refuse a system user that jobs cannot run as: there is none of that name, or this server is not root."""
    if name is None:
        return
    if os.geteuid() != 0:
        raise InputError(f"run_as {name!r} needs a server that runs as root; start it as root, or leave run_as out")
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise InputError(f"run_as {name!r} is no user of this system; add it, or name another") from None


def find_login() -> str:
    """The name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "owner"
