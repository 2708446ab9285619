"""A few scenarios of every stage and verdict, which always run: each must be called what it is.

All others run by `scripts/parity-table`.
"""

from tests.parity.scenarios.core import SCENARIOS
from tests.parity.themes import called_what_it_is

test_it_is_called_what_it_is = called_what_it_is(SCENARIOS)
