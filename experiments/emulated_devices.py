"""Device types that one CPU stands for, by what its libraries are told before their first operator.

The same program then rounds differently, as on another GPU. Nothing here is part of the product.
"""

from collections.abc import Mapping

# Emulated device type -> variables; these were seen to change bits, not random numbers (specification, section 5).
DEVICE_TYPES: Mapping[str, Mapping[str, str]] = {
    "V100": {},
    "P100": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
}
