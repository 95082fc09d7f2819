"""`python -m springtide`: the command line where no script of it is on the path."""

from springtide.cli.app import main

main()
