"""An Accelerator, elastic: `from springtide.integrations.accelerate import ElasticAccelerator`."""

from springtide.integrations.frameworks import check_versions

#: Versions whose insides the adapter was written against and tested with.
TRIED = {"accelerate": ("1.15.0",)}

check_versions(TRIED)

# Only a version that was tried has what this derives from.
from springtide.integrations.accelerate.elastic_accelerator import ElasticAccelerator  # noqa: E402

__all__ = ["ElasticAccelerator"]
