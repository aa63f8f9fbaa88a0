"""Makes tests/support and tests/golden importable from every test folder."""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE / "support"), str(HERE / "golden")]
