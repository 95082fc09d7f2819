"""What SIGTERM means in a training process, and in one that its script has forked."""

import os
import signal

from springtide.training.group.agreement import Agreement
from springtide.training.group.control_channel import Channel
from springtide.training.settings import Settings


def test_sigterm_is_kept_for_the_boundary_here_and_ends_a_forked_process_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    agreement = Agreement(Settings(), Channel(None, "p0"), None)
    try:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        signal.raise_signal(signal.SIGTERM)
        assert agreement.is_terminated()
    finally:
        signal.signal(signal.SIGTERM, before)
