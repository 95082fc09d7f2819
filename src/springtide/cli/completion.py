"""`springtide completion`: what makes a shell complete commands, options and the names of jobs."""

from enum import StrEnum

import typer

from springtide.cli.app import COMPLETE
from springtide.cli.outputs import OUTPUT, OutputOption

NAMES = ("springtide", "tide")


class CompletedShell(StrEnum):
    """Shells that can be told how."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def run(
    shell: CompletedShell = typer.Argument(metavar="bash|zsh|fish", help="Your shell."), output: OutputOption = OUTPUT
) -> None:
    """Print the lines that make a shell complete commands, options and job names; put them where it reads them.

    Examples:

      springtide completion bash >> ~/.bashrc

      springtide completion zsh >> ~/.zshrc

      springtide completion fish > ~/.config/fish/completions/springtide.fish
    """
    from typer._completion_shared import get_completion_script

    scripts = [get_completion_script(prog_name=name, complete_var=COMPLETE, shell=str(shell)) for name in NAMES]
    script = "\n".join(scripts)
    if not output.write({"schema": 1, "shell": str(shell), "script": script}):
        print(script)
