"""Packing a working directory: its files without those that `.gitignore` and `.springtideignore` leave out.

Data does not belong in an archive, and files that usually hold secrets are withheld unless an ignore file brings them
back (`!.env`). What an archive is, and how large it may be, says `core.archive_format`.
"""

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from springtide.core.archive_format import LIMIT_BYTES, MOST_FILES, Archive, explain_size, hash_bytes
from springtide.errors import ArchiveError

ALWAYS_IGNORED = (".git/", "__pycache__/", ".venv/", "*.pyc", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/")
SECRETS = (
    *(".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", "*.pem", "*.key", "*.p12", "*.pfx"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pypirc", ".git-credentials"),
    *(".ssh/", ".aws/", ".gnupg/", ".kube/"),
)
IGNORE_FILES = (".gitignore", ".springtideignore")


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules of one folder's ignore files, and the folder that they count from."""

    base: str
    spec: GitIgnoreSpec
    secrets: bool = False

    def judge(self, name: str) -> bool | None:
        """Whether a name, with `/` at the end of a folder's, is ignored or kept; None where no rule matches."""
        return self.spec.check_file(name.removeprefix(self.base)).include


def pack(folder: Path, limit_bytes: int = LIMIT_BYTES, without: Path | None = None) -> Archive:
    """The archive of a folder without what is ignored; refused with its five largest files when too large.

    `without` is the job file: it says what to do with the code and is not part of it.
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


def add_file(tar: tarfile.TarFile, folder: Path, name: str) -> None:
    """Add a file with nothing of it but name, content and whether it may be executed."""
    path = folder / name
    content = path.read_bytes()
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
    tar.addfile(member, io.BytesIO(content))


STANDARD = (
    IgnoreRules("", GitIgnoreSpec.from_lines(ALWAYS_IGNORED)),
    IgnoreRules("", GitIgnoreSpec.from_lines(SECRETS), secrets=True),
)


def list_files(folder: Path) -> Iterator[str]:
    """Names of the regular files that are not ignored, sorted, with `/` between folders. Links are not followed."""
    yield from sorted(name for name, withheld in walk_files(folder, "", STANDARD) if not withheld)


def list_withheld(folder: Path) -> list[str]:
    """What is not packed because it may hold secrets, and nothing else leaves it out; folders end in `/`."""
    return sorted(name for name, withheld in walk_files(folder, "", STANDARD) if withheld)


def walk_files(root: Path, base: str, rules: tuple[IgnoreRules, ...]) -> Iterator[tuple[str, bool]]:
    """The files under one folder of the tree that are packed or (True) withheld."""
    here = root / base
    rules = (*rules, read_rules(here, base))
    with os.scandir(here) as entries:
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            name = f"{base}{entry.name}{'/' if is_folder else ''}"
            ignoring = find_ignoring(name, rules)
            if ignoring is not None:
                if ignoring.secrets:
                    yield name, True
            elif is_folder:
                yield from walk_files(root, name, rules)
            elif entry.is_file(follow_symlinks=False):
                yield name, False
            elif entry.is_symlink() and entry.is_file():
                raise ArchiveError(f"{name} in workdir {str(root)!r} is a link; copy the file, or ignore the link")


def read_rules(folder: Path, base: str) -> IgnoreRules:
    """The rules of a folder's ignore files."""
    files = (folder / name for name in IGNORE_FILES)
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file())
    return IgnoreRules(base, GitIgnoreSpec.from_lines(line for text in texts for line in text.splitlines()))


def find_ignoring(name: str, rules: tuple[IgnoreRules, ...]) -> IgnoreRules | None:
    """The rules that leave a name out: the last that match, in the innermost folder that has any."""
    judged = ((one, one.judge(name)) for one in reversed(rules))
    return next((one if ignored else None for one, ignored in judged if ignored is not None), None)
