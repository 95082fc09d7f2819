"""How many devices a job may hold, as a job file says it: a number, a range or a list. Pure."""

import re

from springtide.core.limits import MOST_DEVICES

SHARES_ONE_BY_ONE = 16  # up to here every share of a range is tried, beyond it powers of two
_RANGE = re.compile(r"(\d+)\.\.(\d+)", re.ASCII)


def list_devices(value: int | str | list[int]) -> tuple[int, ...]:
    """The numbers of devices that `4`, `1..8` or `[1, 2, 4]` permits, ascending."""
    if isinstance(value, int):
        numbers = {value}
    elif isinstance(value, str):
        match = _RANGE.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{value!r} is neither a number, a range such as 1..8, nor a list such as [1, 2, 4]")
        low, high = int(match[1]), int(match[2])
        if low > high:
            raise ValueError(f"{value!r} is empty: {low} is above {high}")
        numbers = {low, high} if high > MOST_DEVICES else thin_range(low, high)
    else:
        numbers = set(value)
    if not numbers or min(numbers) < 1 or max(numbers) > MOST_DEVICES:
        raise ValueError(f"{value!r} must name numbers of devices from 1 to {MOST_DEVICES}")
    return tuple(sorted(numbers))


def thin_range(low: int, high: int) -> set[int]:
    """Shares worth trying in a range: each of the first sixteen, then powers of two, and its ends."""
    powers = {1 << exponent for exponent in range(high.bit_length())}
    one_by_one = set(range(low, min(high, SHARES_ONE_BY_ONE) + 1))
    return {low, high} | one_by_one | {power for power in powers if low <= power <= high}
