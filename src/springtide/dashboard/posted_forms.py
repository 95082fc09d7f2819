"""What browsers send with forms."""

from urllib.parse import parse_qsl

from fastapi import Request

from springtide.errors import InputError

MOST_FIELDS = 200


async def read_pairs(request: Request) -> list[tuple[str, str]]:
    """The names and values of a form, in its order."""
    body = (await request.body()).decode("utf-8", errors="replace")
    try:
        return parse_qsl(body, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise InputError(f"the form has more than {MOST_FIELDS} fields; send fewer") from None


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; of several with one name the last."""
    return dict(await read_pairs(request))


def find_next(text: str) -> str:
    """Where to go on to: a path of this server, or the board."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\")) and "\n" not in text and "\r" not in text
    return text if is_path else "/"
