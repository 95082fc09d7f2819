"""What a job needs before it starts, in a process of its own: its setup run once, its inputs there and fingerprinted.

Reads a request as JSON from stdin and writes one JSON line to stdout: `fingerprints`, or `code` and `reason` of what
went wrong. What setup commands print goes to stderr. Imports nothing of springtide: it may run as another user.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

LOCK, DONE = ".springtide-setup.lock", ".springtide-setup.done"
FETCH_S = 30.0  # without a byte
CHUNK = 1 << 20


class PreparationError(Exception):
    """A code and a sentence; what may go better later has a code that says so."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def main() -> None:
    """Do what is asked, and say what came of it."""
    request: dict[str, Any] = json.load(sys.stdin)
    try:
        if request["setup"]:
            set_up(Path(request["source"]), Path(request["folder"]), request["setup"])
        places = Path(request["inputs_dir"]), Path(request["cache_dir"])
        found = {name: provide(name, source, *places) for name, source in request["inputs"].items()}
        report: dict[str, Any] = {"fingerprints": found}
    except PreparationError as error:
        report = {"code": error.code, "reason": str(error)}
    except OSError as error:
        report = {
            "code": "no_folder",
            "reason": f"what the job needs cannot be written ({error}); free or mend the disk",
        }
    print(json.dumps(report), flush=True)


def set_up(source: Path, folder: Path, lines: list[str]) -> None:
    """Run setup commands in a copy of the code, unless that was done; whoever comes meanwhile waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / DONE).exists():
            return
        for old in folder.iterdir():
            if old.name != LOCK:
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
        shutil.copytree(source, folder, dirs_exist_ok=True)
        for number, line in enumerate(lines, start=1):
            print(f"setup: {line}", file=sys.stderr, flush=True)
            done = subprocess.run(["sh", "-e", "-c", line], cwd=folder, stdin=subprocess.DEVNULL, stdout=sys.stderr)
            if done.returncode != 0:
                which = f"{number} of {len(lines)} ({line[:200]!r})"
                raise PreparationError("setup_failed", f"setup command {which} ended with code {done.returncode}")
        (folder / DONE).touch()


def provide(name: str, source: str, inputs: Path, cache: Path) -> str:
    """Have an input under its name; returns the fingerprint of what it holds."""
    inputs.mkdir(parents=True, exist_ok=True)
    if source.startswith("/"):
        target, fingerprint = Path(source), look(name, Path(source))
    else:
        target, fingerprint = fetch(name, source, cache)
    link = inputs / name
    partial = link.with_name(f".{name}.part")
    partial.unlink(missing_ok=True)
    partial.symlink_to(target)
    partial.replace(link)
    return fingerprint


def look(name: str, path: Path) -> str:
    """A fingerprint of the names, sizes and times of change of all files below a path."""
    if not path.exists():
        raise PreparationError("no_input", f"input {name}: {path} does not exist on this machine; correct `inputs`")
    sign = hashlib.sha256()
    files = [path] if path.is_file() else sorted(Path(top, one) for top, _, names in os.walk(path) for one in names)
    for file in files:
        try:
            found = file.stat()
        except OSError:
            continue  # it has just gone, which the next look shows
        sign.update(f"{file.relative_to(path)}\0{found.st_size}\0{found.st_mtime_ns}\n".encode(errors="replace"))
    return f"files:{sign.hexdigest()}"


def fetch(name: str, address: str, cache: Path) -> tuple[Path, str]:
    """The file of an address, named by its content and read-only, and its fingerprint; asked for again only if new."""
    cache.mkdir(parents=True, exist_ok=True)
    note = cache / f"{hashlib.sha256(address.encode()).hexdigest()}.json"
    known = json.loads(note.read_text()) if note.exists() else {}
    is_kept = bool(known) and (cache / known["sha256"]).exists()
    headers = {"If-None-Match": known["etag"]} if is_kept and known.get("etag") else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=FETCH_S) as reply:
            sha256 = keep(reply, cache)
            write(note, json.dumps({"sha256": sha256, "etag": reply.headers.get("ETag")}))
    except urllib.error.HTTPError as error:
        if error.code != 304:
            code = "no_input" if error.code < 500 else "input_unreachable"
            raise PreparationError(code, f"input {name}: {address} answers {error.code} {error.reason}") from None
        sha256 = known["sha256"]
    except OSError as error:
        raise PreparationError("input_unreachable", f"input {name}: {address} cannot be fetched ({error})") from None
    return cache / sha256, f"sha256:{sha256}"


def keep(reply: Any, cache: Path) -> str:
    """Write what comes to a file named by its content; returns the name."""
    sign, partial = hashlib.sha256(), cache / f".{os.getpid()}.part"
    with partial.open("wb") as file:
        while chunk := reply.read(CHUNK):
            sign.update(chunk)
            file.write(chunk)
    partial.chmod(0o444)
    partial.replace(cache / sign.hexdigest())
    return sign.hexdigest()


def write(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    partial = path.with_name(f".{os.getpid()}.note")
    partial.write_text(text)
    partial.replace(path)


if __name__ == "__main__":
    main()
