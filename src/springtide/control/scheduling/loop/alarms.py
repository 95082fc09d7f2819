"""When the policy is asked again though nothing has happened: at the instant it named, or soon after it failed."""

from dataclasses import dataclass
from math import inf

LEAD_S = 0.1  # the policy is also asked this long before the instant it named
RETRY_S = 1.0  # after a policy has failed it is asked again, after twice as long each time it fails again
MOST_RETRY_S = 60.0


@dataclass(slots=True)
class Alarm:
    """The next instants at which the policy is asked; platform time."""

    wake_at_s: float = inf
    retry_at_s: float = inf
    retry_s: float = RETRY_S

    @property
    def due_s(self) -> float:
        """When the policy is asked at the latest."""
        return min(self.wake_at_s, self.retry_at_s)

    def set(self, wake_at_s: float, now_s: float) -> None:
        """Wake when the policy asked for it, and a little before: after the last moment to promise a job it is late."""
        self.retry_s = RETRY_S
        early_s = wake_at_s - LEAD_S
        self.wake_at_s = early_s if early_s > now_s else wake_at_s

    def postpone(self, now_s: float) -> None:
        """The policy has failed: ask it again, after twice as long each time."""
        self.wake_at_s, self.retry_at_s = inf, now_s + self.retry_s
        self.retry_s = min(2 * self.retry_s, MOST_RETRY_S)
