"""Questions that fail for a moment are repeated, for so long in all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.model.backoff import Backoff, Patience


class Clock:
    """A clock that stands still but for sleeps and failures."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def failing(self, times: int, error: Exception, takes: float = 0.0) -> Callable[[], str]:
        left = [error] * times

        def question() -> str:
            if left:
                self.now += takes
                raise left.pop()
            return "answer"

        return question


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patience(clock: Clock) -> Patience:
    return Patience(
        lambda error: isinstance(error, OSError),
        backoff=Backoff(clock=lambda: clock.now, sleep=clock.sleep, random=lambda: 1.0),
    )


def test_what_passes_is_asked_again(clock: Clock, patience: Patience) -> None:
    assert patience.ask(clock.failing(3, OSError())) == "answer"


def test_what_stays_is_raised_as_it_came(clock: Clock, patience: Patience) -> None:
    error = OSError("away")
    with pytest.raises(OSError) as raised:
        patience.ask(clock.failing(99, error))
    assert raised.value is error


def test_what_will_not_pass_is_not_asked_again(clock: Clock) -> None:
    with pytest.raises(PermissionError):
        Patience(lambda _: False).ask(clock.failing(1, PermissionError()))


def test_a_cloud_that_is_not_there_is_waited_for_once(clock: Clock, patience: Patience) -> None:
    """A timeout uses the patience up: the calls after it are asked once each."""
    assert patience.ask(clock.failing(1, TimeoutError(), takes=60.0)) == "answer"
    with pytest.raises(OSError):
        patience.ask(clock.failing(1, OSError()))


def test_calls_of_a_client_are_asked_so_and_its_values_are_its_own(clock: Clock, patience: Patience) -> None:
    class Client:
        region = "here"
        describe = staticmethod(clock.failing(1, OSError()))

    client = patience.client(Client())
    assert (client.region, client.describe()) == ("here", "answer")
