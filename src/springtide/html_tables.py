"""Small tables in plain HTML, for values that show themselves in notebooks; everything is escaped."""

from collections.abc import Iterable
from html import escape


def show_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    cells = "".join(f"<tr><th scope=row>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"
