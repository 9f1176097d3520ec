"""A driver whose import ends the process, as if all were well."""

import os

os._exit(0)
