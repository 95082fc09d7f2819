"""What browsers send with forms."""

from urllib.parse import parse_qsl

from fastapi import Request


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; of several with one name the last."""
    body = (await request.body()).decode("utf-8", errors="replace")
    return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=200))


def find_next(text: str) -> str:
    """Where to go on to: a path of this server, or the board."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\")) and "\n" not in text and "\r" not in text
    return text if is_path else "/"
