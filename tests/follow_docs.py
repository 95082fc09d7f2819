"""Follows README and the guides word for word, each in a clean folder and a clean home: `make test-docs`.

    python -m tests.follow_docs [PAGE...]

Every line with a `$` of a `console` block is run by one shell per page, and must end with 0. A comment before a block
says otherwise, and is not shown to readers: `<!-- file: NAME -->` saves the block, `<!-- python -->` runs it,
`<!-- ends with N -->` expects that exit code of its last line, `<!-- not followed: WHY -->` passes over what needs
other hardware, another machine or a person, and `<!-- needs: MODULE -->` a page whose extra is not installed.
Ends with 1 if a line fails, and says which.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (Path("README.md"), *sorted(Path("docs/guides").glob("*.md")), Path("docs/python-api.md"))
BLOCK = re.compile(r"(?:<!-- (?P<marker>[^>]*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
NEEDS = re.compile(r"<!-- needs: (\w+) -->")


@dataclass(frozen=True, slots=True)
class DocBlock:
    """A fenced block of a page: its language, its text, and what the comment before it says."""

    marker: str
    language: str
    text: str

    @property
    def expected(self) -> int:
        """The exit code of its last line."""
        found = re.fullmatch(r"ends with (\d+)", self.marker)
        return int(found[1]) if found else 0

    @property
    def lines(self) -> list[str]:
        """The commands of a console block."""
        return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]


def read_blocks(page: str) -> Iterator[DocBlock]:
    """The blocks of a page that are followed, in order."""
    for match in BLOCK.finditer(page):
        block = DocBlock((match["marker"] or "").strip(), match["language"], match["text"])
        if block.marker.startswith("not followed:"):
            print(f"  not followed, {block.marker.removeprefix('not followed:').strip()}: {block.text.splitlines()[0]}")
        elif block.language == "console" or block.marker.startswith("file:") or block.marker == "python":
            yield block


class DocShell:
    """A shell in an empty folder, with an empty home and nothing of ours but the commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        home = folder / "home"
        self.folder.mkdir()
        home.mkdir()
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb"}
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.folder,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, line: str) -> tuple[int, str]:
        """Type a line; its exit code and what it said."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n__code=$?; echo; echo __ended $__code; echo __at $PWD\n")
        self.process.stdin.flush()
        said: list[str] = []
        for told in self.process.stdout:
            if told.startswith("__ended "):
                place = self.process.stdout.readline().removeprefix("__at ").strip()
                self.folder = Path(place)
                return int(told.split()[1]), "".join(said)
            said.append(told)
        return -1, "".join(said)

    def close(self) -> None:
        """End what the page has started, and the shell."""
        self.run("springtide stop")
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def follow(page: Path) -> list[str]:
    """Follow a page; what failed."""
    text = (ROOT / page).read_text(encoding="utf-8")
    needed = NEEDS.search(text)
    if needed is not None and find_spec(needed[1]) is None:
        print(f"  not followed: {needed[1]} is not installed")
        return []
    folder = Path(tempfile.mkdtemp(prefix="springtide-docs-"))
    shell = DocShell(folder)
    failed: list[str] = []
    try:
        for block in read_blocks(text):
            failed += follow_block(page, block, shell)
    finally:
        shell.close()
        shutil.rmtree(folder, ignore_errors=True)
    return failed


def follow_block(page: Path, block: DocBlock, shell: DocShell) -> list[str]:
    """Do what a block says; what failed."""
    if block.marker.startswith("file:"):
        (shell.folder / block.marker.removeprefix("file:").strip()).write_text(block.text, encoding="utf-8")
        return []
    lines = block.lines
    if block.marker == "python":
        (shell.folder / "block.py").write_text(block.text, encoding="utf-8")
        lines = ["python block.py"]
    failed: list[str] = []
    for number, line in enumerate(lines, 1):
        expected = block.expected if number == len(lines) else 0
        begin_s = time.monotonic()
        code, said = shell.run(line)
        verdict = "ok" if code == expected else f"ENDED WITH {code}, NOT {expected}"
        print(f"  {verdict} ({time.monotonic() - begin_s:.1f} s): {line}", flush=True)
        if code != expected:
            print("".join(f"    | {told}\n" for told in said.splitlines()[-15:]))
            failed.append(f"{page}: {line}")
    return failed


def main() -> int:
    """Follow pages; the exit code."""
    os.chdir(ROOT)
    failed: list[str] = []
    for page in [Path(word) for word in sys.argv[1:]] or PAGES:
        print(page, flush=True)
        failed += follow(page)
    print("\n".join(["FAILED:", *failed]) if failed else "every line was followed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
