"""Prints more than any disk should hold."""

import sys

line = "x" * 1023 + "\n"
for _ in range(int(sys.argv[1]) * 1024):
    sys.stdout.write(line)
