"""Several causes at once, and scripts that differ from themselves: each must be called what it is."""

from tests.parity.scenarios.several import SCENARIOS
from tests.parity.themes import called_what_it_is

test_it_is_called_what_it_is = called_what_it_is(SCENARIOS)
