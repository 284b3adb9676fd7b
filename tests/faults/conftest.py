"""The forms of files that are fuzzed are those of the readers of data and, in kept_formats.py, of what we keep."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
