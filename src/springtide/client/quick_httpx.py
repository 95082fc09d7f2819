"""httpx without its own command line, which takes longer to import (rich, pygments) than all the rest of it.

`from springtide.client.quick_httpx import httpx` wherever a command may be the first to need it: `springtide logs` is
then there 0.1 s earlier.
"""

import sys

COMMAND_LINE = "httpx._main"

if "httpx" in sys.modules:
    import httpx as httpx
else:
    # None there makes an import fail, and httpx goes on without what it calls optional.
    sys.modules[COMMAND_LINE] = None  # type: ignore[assignment]
    try:
        import httpx as httpx
    finally:
        del sys.modules[COMMAND_LINE]
