"""An interpreter that every user here can run, made from ours: `python -m tests.control.readable_python DIR`.

The tests of `run_as` start jobs under other users, who often cannot reach ours: it lies in a home folder. What they
cannot read is copied (by hard links where that goes) below DIR; prints the path of the interpreter.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

OTHER = "nobody"
REPOSITORY = Path(__file__).parents[2]


def can_read(path: Path) -> bool:
    """Whether another user can read a file."""
    return subprocess.run(["test", "-r", str(path)], user=OTHER, cwd="/").returncode == 0


def link_or_copy(source: str, target: str) -> None:
    """A second name for a file, or a copy on another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def share(folder: Path, sample: str, place: Path) -> Path:
    """A folder that everybody can read: itself if a file in it can be read, else a copy at a place."""
    if can_read(folder / sample):
        return folder
    skipped = shutil.ignore_patterns("__pycache__", "site-packages", "*.a")
    shutil.copytree(folder, place, symlinks=True, copy_function=link_or_copy, ignore=skipped)
    return place


def free_library_path(program: Path, prefix: Path) -> None:
    """Let a copied interpreter find its library beside itself, not where it was built: in place, in its run path."""
    built = os.fsencode(prefix / "lib")
    data = program.read_bytes()
    program.unlink()  # it may be another name of the original
    program.write_bytes(data.replace(built + b"\0", b"$ORIGIN/../lib".ljust(len(built), b"\0") + b"\0"))
    program.chmod(0o755)


def make(folder: Path) -> Path:
    """The interpreter, with our packages and this repository."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    prefix, version = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    shared = share(prefix, f"lib/{version}/os.py", folder / "base")
    program = shared / "bin" / version
    if shared != prefix:
        free_library_path(program, prefix)
    packages = share_packages(Path(sysconfig.get_path("purelib")), folder / "packages")
    source = share(REPOSITORY / "src", "springtide/__init__.py", folder / "src")
    environment = {"PATH": os.environ["PATH"]}
    subprocess.run([program, "-m", "venv", "--without-pip", folder / "venv"], check=True, env=environment)
    added = folder / "venv" / "lib" / version / "site-packages" / "shared.pth"
    added.write_text(f"{packages}\n{source}\n")
    return folder / "venv" / "bin" / "python"


def share_packages(packages: Path, place: Path) -> Path:
    """Our installed packages where everybody can read them."""
    if can_read(packages / "torch" / "__init__.py"):
        return packages
    shutil.copytree(packages, place, symlinks=True, copy_function=link_or_copy)
    return place


if __name__ == "__main__":
    print(make(Path(sys.argv[1]).absolute()))
