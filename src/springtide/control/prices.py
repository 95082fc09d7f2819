"""What a device-hour costs, by device type. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Dollars per device-hour: of some types, and of all others; a type without a price costs nothing."""

    usual: float | None = None
    by_type: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has a price, so that costs mean nothing here."""
        return self.usual is None and not self.by_type

    def find(self, device_type: str) -> float:
        """A device-hour of a type."""
        return self.by_type.get(device_type, self.usual or 0.0)

    def average(self, device_types: Iterable[str]) -> float:
        """A device-hour of what a job holds: the mean over its devices; 0 if it holds none."""
        prices = [self.find(device_type) for device_type in device_types]
        return sum(prices) / len(prices) if prices else 0.0

    def covers(self, device_types: Iterable[str]) -> bool:
        """Whether each of these types has a price."""
        return self.usual is not None or all(one in self.by_type for one in device_types)


UNPRICED = PriceTable()
