"""Whether a command was written for a shell, which never sees it: found by its letters, as a shell would read them."""

import re

OPERATORS = ("&&", "||", ">>", "<<", ";", "|", "&", ">", "<", "`", "(", ")", "*", "?", "\n")
#: What acts only where a word begins: a comment, and one's home folder.
WORD_BEGINS = ("#", "~")
#: Without one of these a command holds nothing for a shell; most hold none.
_SIGNS = re.compile(r"[&|<>;`()*?#~$\n]")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=", re.ASCII)
#: Words of a shell that no program is called by, and what does the same in a job file.
BUILTINS = {
    "cd": "name the folder with workdir:, as in workdir: src",
    "export": "set variables with env:, as in env: {LR: '0.1'}",
    "source": "set variables with env:, name an interpreter with python:, prepare the code with setup:",
    ".": "set variables with env:, name an interpreter with python:, prepare the code with setup:",
    "alias": "write the command itself, or prepare the code with setup:",
}
SEVERAL_LINES = "several lines"


def explain_shell_syntax(text: str, key: str = "run") -> str | None:
    """What is wrong with a command that was written for a shell, and what to do; None where none is needed.

    Only a job's own command, `run`, has keys beside it that say the same.
    """
    found = find_builtin(text) or find_shell_syntax(text)
    if found is None:
        return None
    told = found if found == SEVERAL_LINES else repr(found)
    own = find_remedy(found) if key == "run" else ""
    remedy = f'put it into a script, or write {key}: [bash, -c, "..."]; quote it if your program is to get it as it is'
    return (
        f"{key} holds {told}, which only a shell understands, and none reads it; {f'{own}; or ' if own else ''}{remedy}"
    )


def find_builtin(text: str) -> str | None:
    """The first word of a command, if it is a shell's own or sets a variable, whose value may be a secret: left out."""
    first = "".join(text.split()[:1])
    assigned = _ASSIGNMENT.match(first)
    return assigned[0] if assigned else first if first in BUILTINS else None


def find_remedy(found: str) -> str:
    """What does the same in a job file; empty where nothing does."""
    if found == SEVERAL_LINES:
        return "write one command on one line (a long one after `run: >-`)"
    if found == "~":
        return "write the whole path"
    assigned = _ASSIGNMENT.fullmatch(found)
    return f"set it with env:, as in env: {{{assigned[1]}: '...'}}" if assigned else BUILTINS.get(found, "")


def find_shell_syntax(text: str) -> str | None:
    """The first piece of a command that only a shell would act on, outside quotes; None if there is none.

    A variable counts in double quotes too, because a shell replaces it there.
    """
    text = text.strip()
    if _SIGNS.search(text) is None:
        return None
    quote, position = "", 0
    while position < len(text):
        letter = text[position]
        if letter == "\\" and quote != "'":
            if text[position + 1 : position + 2] == "\n" and not quote:
                return SEVERAL_LINES
            position += 2
            continue
        if letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
        elif found := find_at(text, position, quote):
            return SEVERAL_LINES if found == "\n" else found
        position += 1
    return None


def find_at(text: str, position: int, quote: str) -> str:
    """What of a shell a text has at a position, inside a quote or not; empty if there is nothing."""
    if quote == "'":
        return ""
    rest = text[position:]
    if found := find_variable(rest):
        return found
    begins_word = position == 0 or text[position - 1].isspace()
    signs = OPERATORS + (WORD_BEGINS if begins_word else ())
    return "" if quote else next((one for one in signs if rest.startswith(one)), "")


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
