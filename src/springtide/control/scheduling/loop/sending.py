"""Instructions on their way to the executor: kept in order until they have arrived, given up when refused for good."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from springtide.control.scheduling.loop.non_blocking_executor import UnansweredError
from springtide.executors.protocol import Executor, Instruction

MOST_REFUSALS = 5  # of one instruction by an executor that answers

#: Hears of an instruction that has arrived.
OnArrival: TypeAlias = Callable[[Instruction], None]
#: Hears of an instruction that is given up, and why.
OnRefusal: TypeAlias = Callable[[Instruction, Exception], None]


class InstructionSender:
    """The instructions that are not known to have arrived. Sent twice does no harm: they count once, by generation."""

    def __init__(self, executor: Executor, unsent: Iterable[Instruction]) -> None:
        self.executor = executor
        self.unsent = list(unsent)
        self.refusals: dict[str, int] = {}  # by the key of an instruction
        self.acknowledged = 0

    def concerns(self, job_id: str) -> bool:
        """Whether anything is on its way for a job."""
        return any(one.job == job_id for one in self.unsent)

    def send(self, on_arrival: OnArrival, on_refusal: OnRefusal) -> None:
        """Send everything, or one by one if something of it is refused; raises if the executor does not answer."""
        if not self.unsent:
            return
        try:
            self.executor.apply(self.unsent)
        except (UnansweredError, OSError):
            raise
        except Exception:  # an executor may be anybody's code
            self.executor.running()  # raises if it is the executor that is gone, not an instruction that is refused
            self.send_singly(on_arrival, on_refusal)
            return
        arrived, self.unsent = self.unsent, []
        for one in arrived:
            on_arrival(one)

    def send_singly(self, on_arrival: OnArrival, on_refusal: OnRefusal) -> None:
        """Send instructions one by one, so that one that is refused keeps no other back; give up on it in the end."""
        instructions, self.unsent = self.unsent, []
        for number, one in enumerate(instructions):
            try:
                self.executor.apply([one])
            except (UnansweredError, OSError):  # not this instruction is to blame
                self.unsent += instructions[number:]
                raise
            except Exception as error:
                self.refusals[one.key] = self.refusals.get(one.key, 0) + 1
                if self.refusals[one.key] < MOST_REFUSALS:
                    self.unsent.append(one)
                    continue
                del self.refusals[one.key]
                on_refusal(one, error)
            on_arrival(one)

    def acknowledge(self, cursor: int) -> None:
        """Let the executor forget the events up to a number, once."""
        if cursor > self.acknowledged:
            self.executor.acknowledge(cursor)
            self.acknowledged = cursor
