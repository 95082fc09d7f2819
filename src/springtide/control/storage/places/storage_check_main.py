"""Tries the object storage in its argument, as the user and with the environment of its process; prints what is wrong.

A process of its own: what a job names is looked at with what the job has, and with nothing that is the server's.
"""

import os
import sys

from springtide.errors import InputError
from springtide.objects.object_store import ObjectStore


def main() -> None:
    """Try it."""
    try:
        ObjectStore(sys.argv[1], os.environ).check()
    except InputError as error:
        print(error)


if __name__ == "__main__":
    main()
