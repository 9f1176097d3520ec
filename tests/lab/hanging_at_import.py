"""A driver whose import does not end."""

import time

time.sleep(10_000)
