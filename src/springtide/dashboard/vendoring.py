"""The scripts and the font that others wrote: which version of which package, and the digest of every file.

`python -m springtide.dashboard.vendoring` compares the files with their digests; with `--refresh` it takes them anew
from their packages with npm, which nothing else here needs. A version is changed in `static/vendor/vendor.json`.
"""

import argparse
import hashlib
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "static" / "vendor"
LIST = FOLDER / "vendor.json"


def main() -> None:
    """Check the files, or take them anew and write their digests down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refresh", action="store_true", help="take the files from their npm packages")
    if parser.parse_args().refresh:
        refresh()
    wrong = list(check())
    print("\n".join(wrong) or "every vendored file has its digest")
    raise SystemExit(1 if wrong else 0)


def check() -> Iterator[str]:
    """What is wrong with the files, a sentence each."""
    for package in json.loads(LIST.read_text()):
        for file in package["files"]:
            path = FOLDER / file["name"]
            if not path.is_file():
                yield f"{file['name']} of {package['name']} is missing; run with --refresh"
            elif find_digest(path.read_bytes()) != file["sha256"]:
                yield f"{file['name']} is not the file of {package['name']} {package['version']}; run with --refresh"


def refresh() -> None:
    """Take every file from its package, and write its digest down."""
    packages = json.loads(LIST.read_text())
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            take(package, Path(folder))
    LIST.write_text(json.dumps(packages, indent=2) + "\n")


def take(package: dict[str, Any], folder: Path) -> None:
    """Unpack the files of one package that are wanted."""
    subprocess.run(["npm", "pack", f"{package['name']}@{package['version']}"], cwd=folder, check=True)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        for file in package["files"]:
            member = archive.extractfile(f"package/{file['from']}")
            assert member is not None, f"{package['name']} has no {file['from']}"
            data = member.read()
            (FOLDER / file["name"]).write_bytes(data)
            file["sha256"] = find_digest(data)


def find_digest(data: bytes) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    main()
