"""Feeds one tracker from a run's journal, in a process of its own: `python -m ... TRACKER JOURNAL FOLDER`.

Nothing here can disturb training: not an import, not a random number, not a server that is down. It follows the journal
until standard input ends, which it does with the process that trains; then it sends what is left and ends. A second
feed of the same journal waits for the first. With an empty standard input it sends all that a tracker does not have.
"""

import fcntl
import os
import select
import signal
import sys
import time
from pathlib import Path

from springtide.training.tracking.metric_journal import JournalReader
from springtide.training.tracking.trackers import Tracker, open_tracker

#: Said on standard input before it ends, if the run has come to its end.
FINISHED = b"finished"
POLL_S = 0.2
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
#: How long a feed that nobody waits for any more goes on trying.
LAST_S = 30.0
MOST_LINES = 500
#: Training goes first.
POLITENESS = 10


class TrackerFeed:
    """A journal on its way into a tracker."""

    def __init__(self, name: str, journal: Path, folder: Path) -> None:
        self.name = name
        self.journal = journal
        self.folder = folder
        self.failures = 0
        self.is_finished = False
        #: When standard input ended.
        self.ended_s: float | None = None

    def listen(self, seconds: float) -> None:
        """Wait a while, or until standard input ends."""
        if self.ended_s is not None:
            time.sleep(min(seconds, POLL_S))
        elif select.select([0], [], [], seconds)[0]:
            text = os.read(0, 1 << 10)
            self.is_finished = self.is_finished or FINISHED in text
            self.ended_s = time.monotonic() if not text else None

    def run(self) -> bool:
        """Follow the journal to its end; False if the tracker was down for too long."""
        while True:
            try:
                self.follow(open_tracker(self.name, self.read_run(), self.folder))
            except Exception as error:  # whatever a tracker's library may raise: it is opened again, and asked again
                pause_s = PAUSES_S[min(self.failures, len(PAUSES_S) - 1)]
                self.failures += 1
                self.tell(f"{type(error).__name__}: {str(error)[:300]}; training goes on, tried again in {pause_s:g} s")
                if not self.wait(pause_s):
                    return False
            else:
                return True

    def read_run(self) -> str:
        """The id of the run."""
        reader = JournalReader(self.journal)
        reader.close()
        return reader.run

    def wait(self, seconds: float) -> bool:
        """Wait before another try; False when there is to be none."""
        until_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < until_s:
            if self.ended_s is not None and now_s - self.ended_s >= LAST_S:
                return False
            self.listen(until_s - now_s)
        return True

    def follow(self, tracker: Tracker) -> None:
        """Send what the tracker does not have, as it comes."""
        content = tracker.find_content()
        reader = JournalReader(self.journal)
        while True:
            is_last = self.ended_s is not None
            lines = reader.read(MOST_LINES)
            missing = [found for line in lines if (found := content.find_missing(line)) is not None]
            if missing:
                tracker.send(missing)
                self.failures = 0
            if not lines:
                if is_last:
                    break
                self.listen(POLL_S)
        reader.close()
        tracker.close(self.is_finished)

    def tell(self, text: str) -> None:
        """Say something in the log of the process that trains."""
        print(f"springtide: warning: tracker {self.name}: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Feed, alone."""
    name, journal, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the process that trains, with which this one ends
    os.nice(POLITENESS)
    with journal.with_name(f".{journal.stem}-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        feed = TrackerFeed(name, journal, folder)
        if not feed.run():
            command = f"python -m springtide.training.tracking.feed_main {name} {journal} {folder} < /dev/null"
            feed.tell(f"not everything was sent. It is kept; to send it: {command}")
            sys.exit(1)


if __name__ == "__main__":
    main()
