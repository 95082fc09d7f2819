"""A run's trackers as the run sees them: what is logged goes into the journal, and a process per tracker follows it.

Only the process of logical worker 0 has them; where a rescale gives that worker to another, the other goes on with the
same journal.
"""

import atexit
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from springtide.training.settings import Settings
from springtide.training.tracking.feed_main import FINISHED
from springtide.training.tracking.metric_journal import JOURNAL, MetricJournal

FEED = "springtide.training.tracking.feed_main"
#: How long the end of a run waits for its trackers.
PATIENCE_S = 20.0


class MetricTracking:
    """The journal and the feeds of one run, while this process has them."""

    def __init__(self, settings: Settings, output: Path, warn: Callable[[str], None]) -> None:
        self.trackers = [name for name in settings.track.split(",") if name]
        self.output = output
        self.file = (settings.checkpoint_dir or output) / JOURNAL
        # A run without checkpoints starts anew; with them it is the same run, however often it starts.
        self.anew = settings.checkpoint_dir is None and not settings.joining
        self.journal: MetricJournal | None = None
        self.feeds: list[subprocess.Popen[bytes]] = []
        self.is_finished = False
        self.warn, self.is_told = warn, False

    @contextlib.contextmanager
    def spare_training(self) -> Iterator[None]:
        """Go on without what a disk did not take, and say so once: a curve is worth less than the training."""
        try:
            yield
        except OSError as error:
            if not self.is_told:
                self.is_told = True
                self.warn(
                    f"what run.log records is not on disk ({self.file}: {error.strerror}); training goes on, and the "
                    "trackers' curves lack these steps"
                )

    def move(self, is_here: bool) -> None:
        """Have the run's trackers in this process, or no longer."""
        if not self.trackers:
            return
        if is_here and self.journal is None:
            with self.spare_training():
                self.journal = MetricJournal(self.file, self.anew)
                self.feeds = [self.start(name) for name in self.trackers]
        elif not is_here and self.journal is not None:
            with self.spare_training():
                self.journal.close()
            self.journal = None
            self.let_go()
        self.anew = False  # whoever is the next to have them goes on

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a tracker's feed."""
        command = [sys.executable, "-P", "-m", FEED, name, str(self.file.absolute()), str(self.output.absolute())]
        return subprocess.Popen(command, stdin=subprocess.PIPE)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics, unless they were."""
        if self.journal is not None:
            with self.spare_training():
                self.journal.add(step, time.time(), metrics)
            if self.is_finished and not self.feeds:
                self.start_again()

    def start_again(self) -> None:
        """Feed what a script logs after its run has ended, as frameworks do with their summary, until it exits."""
        with self.spare_training():
            self.feeds = [self.start(name) for name in self.trackers]
        atexit.register(self.finish)

    def sync(self) -> None:
        """Have on disk what was recorded."""
        if self.journal is not None:
            with self.spare_training():
                self.journal.sync()

    def let_go(self) -> None:
        """Let the feeds send what is left and end by themselves."""
        for feed in self.feeds:
            assert feed.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                feed.stdin.close()

    def finish(self) -> None:
        """The run, or what the script logs after it, has come to its end: wait for the trackers, but not for ever."""
        self.is_finished = True
        for feed in self.feeds:
            assert feed.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                feed.stdin.write(FINISHED)
                feed.stdin.flush()
        self.let_go()
        until_s = time.monotonic() + PATIENCE_S
        for name, feed in zip(self.trackers, self.feeds, strict=False):
            try:
                feed.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"springtide: warning: tracker {name} is slow; what it lacks is in {self.file}", file=sys.stderr)
        self.feeds = []
