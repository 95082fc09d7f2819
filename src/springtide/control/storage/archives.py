"""Archives at the server: checked, named by their content, and unpacked safely. Packing is the client's business."""

import io
import os
import stat
import tarfile
from pathlib import Path, PurePosixPath

from springtide.core.archive_format import LIMIT_BYTES, MOST_FILES, explain_size, hash_bytes
from springtide.errors import ArchiveError


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
