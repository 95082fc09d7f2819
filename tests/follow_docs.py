"""Follows README and the guides word for word, each in a clean folder and a clean home: `make test-docs`.

    python -m tests.follow_docs [PAGE...]

Every line with a `$` of a `console` block is run by one shell per page, and must end with 0. A comment before a block
says otherwise, and is not shown to readers: `<!-- file: NAME -->` saves the block, `<!-- python -->` runs it,
`<!-- ends with N -->` expects that exit code of its last line, `<!-- not followed: WHY -->` passes over what needs
other hardware, another machine or a person, and `<!-- needs: MODULE -->` a page whose extra is not installed.
Two pages are followed at a time, each with a server of its own and within a limit of time. Ends with 1 if a line
fails, and says which; what was not followed is listed with the reason.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (Path("README.md"), *sorted(Path("docs/guides").glob("*.md")), Path("docs/python-api.md"))
BLOCK = re.compile(r"(?:<!-- (?P<marker>[^>]*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
NEEDS = re.compile(r"<!-- needs: (\w+) -->")
AT_ONCE = 2
LIMIT_S = 900.0  # for a page; one that hangs is ended, and a busy machine judges nobody


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


@dataclass(slots=True)
class PageReport:
    """What became of a page: a line for each that was typed, those that failed, those that nobody typed and why."""

    page: Path
    lines: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    took_s: float = 0.0
    passed_over: list[str] = field(default_factory=list)

    def show(self) -> str:
        """All lines of the page."""
        return "\n".join(
            [f"{self.page} ({self.took_s:.0f} s)", *self.lines, *(f"  not followed: {one}" for one in self.passed_over)]
        )


def read_blocks(page: str, report: PageReport) -> Iterator[DocBlock]:
    """The blocks of a page that are followed, in order."""
    for match in BLOCK.finditer(page):
        block = DocBlock((match["marker"] or "").strip(), match["language"], match["text"])
        if block.marker.startswith("not followed:"):
            why = block.marker.removeprefix("not followed:").strip()
            report.passed_over.append(f"{block.text.splitlines()[0]} ({why})")
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
        self.environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb"}
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.is_late = False
        self.timer = threading.Timer(LIMIT_S, self.give_up)
        self.timer.start()

    def give_up(self) -> None:
        """End a page that takes too long, with what it has started in this shell."""
        self.is_late = True
        os.killpg(self.process.pid, signal.SIGKILL)

    def run(self, line: str) -> tuple[int, str]:
        """Type a line; its exit code and what it said, -1 where the page takes too long."""
        if self.is_late:
            return -1, ""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(f"{line}\n__code=$?; echo; echo __ended $__code; echo __at $PWD\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # the shell was ended, or has ended itself
            return -1, ""
        said: list[str] = []
        for told in self.process.stdout:
            if told.startswith("__ended "):
                place = self.process.stdout.readline().removeprefix("__at ").strip()
                self.folder = Path(place)
                return int(told.split()[1]), "".join(said)
            said.append(told)
        return -1, "".join(said)

    def close(self) -> None:
        """End the shell, and the server that the page has started."""
        self.timer.cancel()
        try:
            with contextlib.suppress(
                subprocess.TimeoutExpired, BrokenPipeError
            ):  # a program behind it holds its output
                self.process.communicate(timeout=60)
        finally:
            stop = ["springtide", "stop"]
            subprocess.run(stop, cwd=self.folder, env=self.environment, capture_output=True, timeout=60, check=False)


def follow(page: Path) -> PageReport:
    """Follow a page."""
    report = PageReport(page)
    begin_s = time.monotonic()
    text = (ROOT / page).read_text(encoding="utf-8")
    needed = NEEDS.search(text)
    if needed is not None and find_spec(needed[1]) is None:
        report.passed_over.append(f"all of it ({needed[1]} is not installed)")
        return report
    blocks = list(read_blocks(text, report))
    if not blocks:
        if not report.passed_over and BLOCK.search(text):
            report.failed.append(f"{page}: it has blocks, none of which is followed or marked as not followed")
        return report
    folder = Path(tempfile.mkdtemp(prefix="springtide-docs-"))
    shell = DocShell(folder)
    try:
        for block in blocks:
            follow_block(block, shell, report)
    finally:
        shell.close()
        shutil.rmtree(folder, ignore_errors=True)
    report.took_s = time.monotonic() - begin_s
    if shell.is_late:
        report.failed.append(f"{page}: it took longer than {LIMIT_S:g} s")
    return report


def follow_block(block: DocBlock, shell: DocShell, report: PageReport) -> None:
    """Do what a block says."""
    if block.marker.startswith("file:"):
        (shell.folder / block.marker.removeprefix("file:").strip()).write_text(block.text, encoding="utf-8")
        return
    lines = block.lines
    if block.marker == "python":
        (shell.folder / "block.py").write_text(block.text, encoding="utf-8")
        lines = ["python block.py"]
    for number, line in enumerate(lines, 1):
        expected = block.expected if number == len(lines) else 0
        begin_s = time.monotonic()
        code, said = shell.run(line)
        verdict = "ok" if code == expected else f"ENDED WITH {code}, NOT {expected}"
        report.lines.append(f"  {verdict} ({time.monotonic() - begin_s:.1f} s): {line}")
        if code != expected:
            report.lines += [f"    | {told}" for told in said.splitlines()[-15:]]
            report.failed.append(f"{report.page}: {line}")


def main() -> int:
    """Follow pages; the exit code."""
    os.chdir(ROOT)
    failed: list[str] = []
    begin_s = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as workers:
        for report in workers.map(follow, [Path(word) for word in sys.argv[1:]] or PAGES):
            print(report.show(), flush=True)
            failed += report.failed
    print(f"{time.monotonic() - begin_s:.0f} s in all, {AT_ONCE} pages at a time")
    print("\n".join(["FAILED:", *failed]) if failed else "every line was followed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
