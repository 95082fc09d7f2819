"""What is taken as an archive, and what is refused: by the reader itself, and by the process that it runs in."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.client.packing import pack
from springtide.control.storage import archives
from springtide.control.storage.archive_reader import ArchiveLimits, Member, read_content, read_member, survey
from springtide.control.storage.archives import take_upload, unpack
from springtide.errors import ArchiveError, StateError

LIMITS = ArchiveLimits(100, 10_000)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    for key, value in fields.items():
        setattr(member, key, value)
    return member


def make_tar(*members: tarfile.TarInfo, data: bytes = b"", form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for member in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def read(data: bytes, limits: ArchiveLimits = LIMITS) -> dict[Member, bytes]:
    """The members of an archive with what they hold."""
    file, found = io.BytesIO(data), {}
    survey(file, limits)
    while (member := read_member(file)) is not None:
        found[member] = b"".join(read_content(file, member.size))
    return found


def name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_unpacking_gives_back_the_files_and_happens_once(tmp_path: Path) -> None:
    write(tmp_path / "a", train_dot_py="print(1)", sub__m_dot_py="2")
    (tmp_path / "a" / "run.sh").touch(mode=0o755)
    archive = pack(tmp_path / "a")
    target = tmp_path / "code" / archive.code_hash
    unpack(archive.data, target)
    unpack(archive.data, target)
    assert (target / "sub" / "m.py").read_text() == "2"
    assert [path.stat().st_mode & 0o777 for path in (target / "train.py", target / "run.sh")] == [0o644, 0o755]
    assert [path.name for path in (tmp_path / "code").iterdir()] == [archive.code_hash]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("name", ["a", "a/b/c.py", "ä/ö.py", "a" * 90 + "/" + "b" * 90, "./x"])
def test_names_come_back_from_every_common_form(name: str, form: int) -> None:
    found = read(make_tar(make_member(name), data=b"x" * 700, form=form))
    assert [(member.name, data) for member, data in found.items()] == [(name.removeprefix("./"), b"x" * 700)]


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", ".", "a/", "a/.."])
def test_members_that_reach_outside_are_refused(name: str) -> None:
    with pytest.raises(ArchiveError, match=r"does not stay inside|is a folder"):
        read(make_tar(make_member(name)))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, b"S", b"g", b"V"]
)
def test_members_that_are_no_files_are_refused(kind: bytes) -> None:
    with pytest.raises(ArchiveError, match="only regular files"):
        read(make_tar(make_member("x", kind, linkname="/etc/passwd")))


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"size": "-1"}, "has two sizes"),
        ({"size": "99999999999999999999"}, "has two sizes"),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x"}, "is a sparse file"),
        ({"GNU.sparse.map": "0,1", "GNU.sparse.size": "99999999999"}, "is a sparse file"),
        ({"path": "../../x"}, "does not stay inside"),
        ({"path": "a/" * 70 + "x"}, "a name that is too long"),
    ],
)
def test_extended_headers_that_lie_are_refused(headers: dict[str, str], sentence: str) -> None:
    with pytest.raises(ArchiveError, match=sentence):
        read(make_tar(make_member("x", pax_headers=headers)))


def change_header(data: bytes, place: slice, value: bytes) -> bytes:
    """An archive with a field of its first header changed, and the sum made right again."""
    header = bytearray(data[:512])
    header[place] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[512:]


@pytest.mark.parametrize(
    "size",
    [b"-0000000001\0", b"\x80" + b"\0" * 10 + b"\x01", b"\xff" * 12, b"00000000009\0", b" " * 12, b"+0000000001\0"],
)
def test_sizes_that_are_no_octal_digits_are_refused(size: bytes) -> None:
    with pytest.raises(ArchiveError, match="not octal digits"):
        read(change_header(make_tar(make_member("x")), slice(124, 136), size))


@pytest.mark.parametrize(
    "names", [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b"), ("x", "x"), ("x", "./x"), ("a/x", "a//x")]
)
def test_a_name_is_given_once_and_is_a_file_or_a_folder(names: tuple[str, ...]) -> None:
    with pytest.raises(ArchiveError, match=r"twice|both as a file and as a folder"):
        read(make_tar(*map(make_member, names)))


def test_what_is_held_is_counted_while_it_is_read() -> None:
    many = make_tar(*(make_member(f"f{n}") for n in range(101)))
    deep = make_tar(*(make_member(f"{n}/" + "d/" * 40 + "x") for n in range(3)))
    for data in (many, deep, make_tar(make_member("x"), data=bytes(10_001))):
        with pytest.raises(ArchiveError, match=r"the limit is 0\.01 MB and 20000 files"):
            read(data)
    # a header that promises more than comes is not believed, and costs nothing
    short = change_header(make_tar(make_member("x")), slice(124, 136), b"00000010000\0")
    with pytest.raises(ArchiveError, match="ends early"):
        read(short[:1024])


@given(st.binary(max_size=2000))
def test_any_bytes_are_taken_or_refused(data: bytes) -> None:
    try:
        read(data)
    except ArchiveError:
        return


def cut(data: bytes) -> bytes:
    return data[:-1500]


@pytest.mark.parametrize("spoil", [cut, lambda data: b"", lambda data: b"junk" * 1000, lambda data: b"\x1f\x8b" + data])
def test_what_is_refused_leaves_nothing_behind(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    data = spoil(make_tar(make_member("a"), make_member("b"), data=b"x" * 5000)[:-9000])
    with pytest.raises(ArchiveError, match="no plain tar file"):
        unpack(data, tmp_path / name_of(data))
    assert list(tmp_path.iterdir()) == []


def test_bytes_with_another_hash_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="has the SHA-256"):
        unpack(make_tar(make_member("a")), tmp_path / ("0" * 64))


def test_the_reader_is_a_process_with_limits_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_tar(make_member("a"))
    with take_upload(tmp_path) as upload, monkeypatch.context() as patched:
        upload.write(data)
        patched.setattr(archives, "READER", ["/bin/sleep", "60"])
        patched.setattr(archives, "READ_S", 0.2)
        patched.setattr(archives, "MOST_FILES", "")
        with pytest.raises(ArchiveError, match=r"within 0\.2 s|more time or memory"):
            upload.unpack(tmp_path / name_of(data))
    with take_upload(tmp_path) as upload, monkeypatch.context() as patched:
        upload.write(data)
        patched.setattr(archives, "READER", ["/bin/sh", "-c", "kill -9 $$"])
        with pytest.raises(ArchiveError, match="more time or memory"):
            upload.unpack(tmp_path / name_of(data))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_more_is_no_fault_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_tar(make_member("a" * 100), data=b"x")
    with take_upload(tmp_path) as upload:
        upload.write(data)
        gone = tmp_path / "gone"
        gone.touch()
        monkeypatch.setattr(archives, "READER", [*archives.READER, str(gone), "10", "10", "#"])
        with pytest.raises(StateError, match="cannot be written"):
            upload.unpack(tmp_path / name_of(data))
