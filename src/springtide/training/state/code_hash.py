"""The fingerprint of the code that trains: a checkpoint of other code is not resumed from by accident."""

import hashlib
import os
import sys
from pathlib import Path


def fingerprint_code() -> str:
    """A hash of the running script and of the modules beside it that it has imported.

    Installed packages are left out: their versions belong to the environment, which the manifest names.
    """
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is None:
        return "interactive"
    home = Path(main).resolve().parent
    files = {Path(main).resolve()}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.isabs(file) and not name.startswith("springtide."):
            path = Path(file).resolve()
            files |= {path} if is_beside(path, home) else set()
    sign = hashlib.sha256()
    for path in sorted(files):
        sign.update(f"{path.relative_to(home)}\0".encode() + path.read_bytes() + b"\0")
    return sign.hexdigest()


def is_beside(path: Path, home: Path) -> bool:
    """Whether a module's file is source of the user's: under the script's folder and not in an environment there."""
    return path.is_relative_to(home) and path.is_file() and path.suffix == ".py" and "site-packages" not in path.parts
