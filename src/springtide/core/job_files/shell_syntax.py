"""Whether a command was written for a shell, which never sees it: found by its letters, as a shell would read them."""

OPERATORS = ("&&", "||", ">>", "<<", ";", "|", "&", ">", "<", "`")


def find_shell_syntax(text: str) -> str | None:
    """The first piece of a command that only a shell would act on, outside quotes; None if there is none.

    A variable counts in double quotes too, because a shell replaces it there.
    """
    quote, position = "", 0
    while position < len(text):
        letter = text[position]
        if letter == "\\" and quote != "'":
            position += 2
            continue
        if letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
        elif found := find_at(text[position:], quote):
            return found
        position += 1
    return None


def find_at(text: str, quote: str) -> str:
    """What of a shell a text begins with, inside a quote or not; empty if it does with nothing."""
    if quote == "'":
        return ""
    return find_variable(text) or ("" if quote else next((one for one in OPERATORS if text.startswith(one)), ""))


def find_variable(text: str) -> str:
    """The variable or the command in its place that a text begins with; empty if it begins with neither."""
    if text[:1] != "$" or len(text) < 2:
        return ""
    if text[1] in "({":
        end = text.find(")" if text[1] == "(" else "}")
        return text[: end + 1] if end > 0 else text[:2]
    name = text[1:]
    length = next((at for at, letter in enumerate(name) if not (letter.isalnum() or letter == "_")), len(name))
    return "" if not length or name[0].isdigit() else text[: length + 1]
