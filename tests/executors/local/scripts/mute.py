"""Never calls springtide.init."""

import sys
import time

time.sleep(float(sys.argv[1]))
