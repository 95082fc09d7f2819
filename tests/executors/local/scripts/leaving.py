"""A script that ends with words, as `sys.exit("...")` does."""

import sys

sys.exit("no data in /nowhere")
