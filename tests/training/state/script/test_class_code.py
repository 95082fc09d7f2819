"""What functions of a class set, wherever the class has them."""

import functools
from typing import Any

from springtide.training.state.script.class_code import find_read_in_use, find_set_by


class Lazy:
    """A proxy that answers whatever it is asked by doing things."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} needs a connection")


class Holding:
    """A class with functions of every kind, and a proxy."""

    proxy = Lazy()

    @property
    def shown(self) -> int:
        self.asked = True
        return 1

    @functools.cached_property
    def table(self) -> int:
        self.made = self.scale
        return 2

    @classmethod
    def open(cls) -> None:
        cls.opened = True  # type: ignore[attr-defined]

    def forward(self) -> int:
        self.count = 1
        return self.shift()

    def shift(self) -> int:
        return self.by

    by = scale = 0


def test_functions_are_found_in_what_is_around_them_and_proxies_are_not_asked() -> None:
    assert find_set_by(Holding) == {"asked", "made", "opened", "count"}
    assert {"by", "shift"} <= find_read_in_use(Holding)
    assert "scale" not in find_read_in_use(Holding)
