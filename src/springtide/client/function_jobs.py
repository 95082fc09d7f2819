"""A job made of a function: the folder of its module goes along, and the job calls it."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from springtide.client.job_folders import JobFolder
from springtide.core.job_file import check_job
from springtide.errors import JobError


def job_from(function: Callable[[], object], **keys: Any) -> JobFolder:
    """A job that calls a function of a module, to be given to `submit` or `plan`; `keys` are those of a job file.

    The folder that the module is imported from is packed as the job's code. The function takes no arguments: what
    differs from job to job comes from `env`, or from a `sweep`.

    job = client.submit(springtide.job_from(train, deadline="30m", devices="1..4"))
    """
    module, name = function.__module__, function.__qualname__
    file = find_file(function)
    if file is None or module == "__main__" or not name.isidentifier():
        raise JobError(
            f"function {name!r} of {module} is not one that a job could import; write it to a file at the top of a "
            "module (in a notebook: %%writefile train.py), import it from there and give that"
        )
    depth = module.count(".") + (file.name == "__init__.py")
    run = ["python", "-c", f"from {module} import {name}; {name}()"]
    job_name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return JobFolder(check_job({"name": job_name, "run": run, **keys}, f"job of {name}"), file.parents[depth])


def find_file(function: Callable[[], object]) -> Path | None:
    """The file in which a function is written; None if there is none."""
    try:
        found = inspect.getsourcefile(function)
    except TypeError:  # it is written in C
        return None
    return None if found is None or not Path(found).is_file() else Path(found).resolve()
