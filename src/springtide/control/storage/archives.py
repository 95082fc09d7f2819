"""Snapshots of a working directory: packed at the client, named by their content, unpacked safely at the server.

An archive is a plain tar of regular files in sorted order without owners or times: equal folders give equal bytes, and
its SHA-256 is the code hash. `.gitignore` and `.springtideignore` are honoured. Data does not belong in it.
"""

import hashlib
import io
import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from springtide.errors import ArchiveError

LIMIT_BYTES = 100_000_000
MOST_FILES = 20_000
ALWAYS_IGNORED = (".git/", "__pycache__/", ".venv/", "*.pyc", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/")
IGNORE_FILES = (".gitignore", ".springtideignore")


@dataclass(frozen=True, slots=True)
class Archive:
    """Packed bytes and their SHA-256 in hexadecimal."""

    data: bytes
    code_hash: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an ignore file, with the folder it counts from; later rules win."""

    base: str
    matches: Callable[[str], bool]
    folders_only: bool
    keeps: bool


def pack(folder: Path, limit_bytes: int = LIMIT_BYTES, without: Path | None = None) -> Archive:
    """The archive of a folder without what is ignored; refused with its five largest files when too large.

    `without` is the job file: it says what to do with the code and is no part of it.
    """
    if not folder.is_dir():
        raise ArchiveError(f"workdir {str(folder)!r} is not a folder; give the folder that holds the script")
    names = [name for name in list_files(folder) if without is None or folder / name != without]
    sizes = {name: (folder / name).stat().st_size for name in names}
    if sum(sizes.values()) > limit_bytes or len(sizes) > MOST_FILES:
        raise ArchiveError(explain_size(f"workdir {str(folder)!r}", sizes, limit_bytes))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            add_file(tar, folder, name)
    data = buffer.getvalue()
    return Archive(data, hash_bytes(data))


def hash_bytes(data: bytes) -> str:
    """The SHA-256 that names an archive."""
    return hashlib.sha256(data).hexdigest()


def add_file(tar: tarfile.TarFile, folder: Path, name: str) -> None:
    """Add a file with nothing of it but name, content and whether it may be executed."""
    path = folder / name
    content = path.read_bytes()
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
    tar.addfile(member, io.BytesIO(content))


def explain_size(what: str, sizes: dict[str, int], limit_bytes: int) -> str:
    """Why a folder or its archive is not taken, and which files to move or ignore."""
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:5]
    listed = ", ".join(f"{name} ({sizes[name] / 1e6:.1f} MB)" for name in largest)
    return (
        f"{what} holds {sum(sizes.values()) / 1e6:.1f} MB in {len(sizes)} files; the limit is "
        f"{limit_bytes / 1e6:g} MB and {MOST_FILES} files. The largest are: {listed}. Name them in .springtideignore, "
        "or keep data elsewhere and give its absolute path"
    )


def list_files(folder: Path) -> Iterator[str]:
    """Names of the regular files that are not ignored, sorted, with `/` between folders. Links are not followed."""
    root_rules = tuple(parse_rule(line, "") for line in ALWAYS_IGNORED)
    yield from sorted(walk(folder, "", root_rules))


def walk(root: Path, base: str, rules: tuple[Rule, ...]) -> Iterator[str]:
    """The files under one folder of the tree."""
    here = root / base
    rules = rules + tuple(read_rules(here, base))
    with os.scandir(here) as entries:
        for entry in entries:
            name = f"{base}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_ignored(name, is_folder, rules):
                continue
            if is_folder:
                yield from walk(root, name + "/", rules)
            elif entry.is_file(follow_symlinks=False):
                yield name
            elif entry.is_symlink() and entry.is_file():
                raise ArchiveError(f"{name} in workdir {str(root)!r} is a link; copy the file, or ignore the link")


def read_rules(folder: Path, base: str) -> Iterator[Rule]:
    """The rules of a folder's ignore files."""
    for file in IGNORE_FILES:
        path = folder / file
        if path.is_file():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield parse_rule(line, base)


def parse_rule(line: str, base: str) -> Rule:
    """One line in git's syntax: `!` keeps, a trailing `/` means folders, an inner `/` anchors to the base."""
    text = line.rstrip()
    keeps = text.startswith("!")
    text = text.lstrip("!") if keeps else text.removeprefix("\\")
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    pattern = translate(text.lstrip("/"))
    expression = re.compile(pattern if anchored else f"(?:.*/)?{pattern}", re.DOTALL)
    return Rule(base, lambda name: expression.fullmatch(name) is not None, folders_only, keeps)


@lru_cache(maxsize=1024)
def translate(glob: str) -> str:
    """A regular expression for a git glob: `**` crosses folders, `*` and `?` do not."""
    parts = re.split(r"(\*\*/|/\*\*|\*|\?|\[[^\]]+\])", glob)
    meanings = {"**/": "(?:.*/)?", "/**": "/.*", "*": "[^/]*", "?": "[^/]"}
    return "".join(meanings.get(part) or translate_rest(part) for part in parts)


def translate_rest(part: str) -> str:
    """A character class as it is, with git's `!` for not; anything else literally."""
    if part.startswith("[") and part.endswith("]"):
        return "[" + part[1:-1].replace("!", "^", 1) + "]" if part[1] == "!" else part
    return re.escape(part)


def is_ignored(name: str, is_folder: bool, rules: tuple[Rule, ...]) -> bool:
    """Whether the last rule that matches leaves a name out."""
    for rule in reversed(rules):
        if (
            name.startswith(rule.base)
            and (is_folder or not rule.folders_only)
            and rule.matches(name.removeprefix(rule.base))
        ):
            return not rule.keeps
    return False


def check_archive(data: bytes, limit_bytes: int = LIMIT_BYTES) -> str:
    """The hash of an uploaded archive; refused unless every member is a regular file at a relative path."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            members = tar.getmembers()
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise ArchiveError(f"the archive is no plain tar file ({error})") from None
    if len(members) > MOST_FILES or sum(member.size for member in members) > limit_bytes:
        raise ArchiveError(explain_size("the archive", {one.name: one.size for one in members}, limit_bytes))
    for member in members:
        check_member(member)
    names = [str(PurePosixPath(member.name)) for member in members]
    if len(set(names)) != len(names):
        raise ArchiveError("the archive holds a name twice")
    return hash_bytes(data)


def check_member(member: tarfile.TarInfo) -> None:
    """Refuse what could reach outside the folder it is unpacked into."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in member.name:
        raise ArchiveError(f"archive member {member.name!r} does not stay inside the folder; use relative paths")
    if not member.isreg():
        kind = "a link" if member.issym() or member.islnk() else "a folder" if member.isdir() else "a device"
        raise ArchiveError(f"archive member {member.name!r} is {kind}; only regular files are taken")


def unpack(data: bytes, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
    """Write the files of an archive below a folder, completely or not at all."""
    if folder.exists():
        return
    check_archive(data, limit_bytes)
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        partial.mkdir(parents=True, exist_ok=True)
        for member in tar.getmembers():
            write_member(tar, member, partial)
    try:
        partial.rename(folder)
    except OSError:
        if not folder.exists():
            raise


def write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one file, read-only where it was not executable, so that no run changes the snapshot by accident."""
    target = folder / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None, "checked: a regular file"
    target.write_bytes(source.read())
    target.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)
