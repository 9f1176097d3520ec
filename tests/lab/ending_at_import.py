"""A driver whose import ends the process with the exit code 0."""

import os

os._exit(0)
