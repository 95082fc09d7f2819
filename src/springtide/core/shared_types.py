"""Types that many rooms name: a JSON document, and whom progress is told."""

from collections.abc import Callable
from typing import Any

#: An object of JSON, as the API and the command line write it.
Document = dict[str, Any]
#: Takes a line of progress for people.
Tell = Callable[[str], None]
