"""What `springtide users` and `springtide projects` share: limits as options and as cells, and how one is removed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.option_groups import option
from springtide.cli.outputs import OutputOption

if TYPE_CHECKING:
    from springtide.client.replies import ProjectInfo, UserInfo
    from springtide.client.reply_values import Reply

NAME = typer.Argument(metavar="NAME", help="Lower-case letters, digits, _ and -.")
HEADINGS = ("QUOTA (DEVICE-S)", "ACTIVE JOBS")
LEGEND = (
    "QUOTA: most device-seconds planned at a time; ACTIVE JOBS: most that have not ended; default: the server's limit"
)


@dataclass(frozen=True, slots=True)
class QuotaOptions:
    """What a user or a project may have, as a group of options; what is not given stays as it is."""

    quota: float | None = option(None, "Most device-seconds planned at a time.", metavar="DEVICE-SECONDS")
    most_active: int | None = option(None, "Most active jobs.", min=0)
    reset: bool = option(False, "Forget what was set before and is not given now.", "--reset")

    def write_document(self, **others: Any) -> dict[str, Any]:
        """What the API is asked for: these limits and `others`, as far as they are given."""
        limits = {"quota_device_s": self.quota, "most_active": self.most_active, **others}
        return {name: value for name, value in limits.items() if self.reset or value is not None}


def show_limits(holder: "UserInfo | ProjectInfo") -> tuple[str, str]:
    """The cells of a user's or project's limits."""
    return show_limit(holder.quota_device_s), show_limit(holder.most_active)


def show_limit(value: float | None) -> str:
    """A limit, or that there is none of its own."""
    return "default" if value is None else f"{value:g}"


def remove(drop: "Callable[[str], Reply]", name: str, output: OutputOption) -> None:
    """Remove one by its name, and say so."""
    removed = drop(name)
    if not output.write(removed.document):
        print(f"removed {name}")
