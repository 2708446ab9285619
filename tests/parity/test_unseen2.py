"""What comes in twos, or behind its consequence: each must be called what it is."""

from tests.parity.scenarios.unseen2 import SCENARIOS
from tests.parity.themes import called_what_it_is

test_it_is_called_what_it_is = called_what_it_is(SCENARIOS)
