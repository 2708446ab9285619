"""The decoder of answers: any bytes become a value of the right type, or Malformed; never another error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.model import Entry, Exit, Fingerprint, RunState
from orchestrator.model.answers import Malformed, Most, decoded, shown
from orchestrator.stack.interpreter import Interpreter
from tests.hostile.machines.lies import DEEP


@dataclass(frozen=True)
class Listing:
    """As the answers that list files."""

    entries: Annotated[tuple[Entry, ...], Most(10)]


SHAPES = (RunState, Exit, Entry, Listing, Fingerprint, Interpreter)

TRUE: dict[Any, Any] = {
    RunState: {
        "state": "ended",
        "exit": {"code": 0, "signal": None, "reason": "completed", "detail": "It went well."},
        "log_bytes": 10,
        "started_at": 1.7e9,
        "ended_at": 1.7e9,
    },
    Listing: {
        "entries": [{"path": "a/ü\udcff", "kind": "file", "size": 1, "mode": 420, "digest": "ab" * 32}]
    },
    Fingerprint: {
        "digest": "ab" * 32,
        "python": "3.11.7",
        "distributions": [{"name": "six", "version": "1.17.0", "record": "ab" * 32, "altered": ["six.py"]}],
        "facts": {"libc": "glibc 2.36"},
        "environment": {"TZ": "UTC"},
    },
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("shape", TRUE, ids=lambda shape: shape.__name__)
def test_what_the_runtime_says_is_understood(shape: Any) -> None:
    text = json.dumps({**TRUE[shape], "of_a_newer_runtime": 1}).encode()
    found = decoded(shape, text)
    assert isinstance(found, shape)
    assert decoded(shape, json.dumps(TRUE[shape]).encode()) == found


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"hello",
        b"null",
        b"\xff\xfe{}",
        b"[]",
        b'"state"',
        DEEP,
        b'{"a":' * 100_000,
        b'{"state": "absent", "state": "absent"}',
        b'{"state": NaN}',
        b'{"state": "absent", "log_bytes": -1}',
        b'{"state": "absent", "log_bytes": 1e400}',
        b'{"state": "absent", "log_bytes": ' + b"9" * 4000 + b"}",
        b'{"state": "absent", "log_bytes": ' + b"9" * 100_000 + b"}",
        b'{"state": "absent", "log_bytes": true}',
        b'{"state": "absent", "started_at": Infinity}',
        b'{"state": "absent", "started_at": 1e300}',
        b'{"state": "dancing"}',
        b'{"log_bytes": 1}',
        b'{"state": "ended", "exit": {"code": 256, "signal": null, "reason": "completed"}}',
        b'{"state": "ended", "exit": {"code": -1, "signal": null, "reason": "completed"}}',
        b'{"state": "ended", "exit": {"code": 0, "signal": 99, "reason": "completed"}}',
        b'{"state": "ended", "exit": {"code": 0, "signal": null, "reason": "\\u001b]0;x\\u0007"}}',
        b'{"state": "ended", "exit": {"code": 0, "signal": null, "reason": "failed", "detail": "%s"}}'
        % (b"x" * 20_000),
        b'{"state": "ended", "exit": {"code": 0, "signal": null, "reason": "failed", "detail": "\\ud800"}}',
        b'{"state": "ended", "exit": [0, null, "completed"]}',
        b'{"state": "absent", "more": "%s"}' % (b"x" * (1 << 20)),
        b"[" + b"[]," * 300_000 + b"[]]",
    ],
    ids=lambda text: f"{text[:60]!r}",
)
def test_what_it_never_says_is_malformed(text: bytes) -> None:
    with pytest.raises(Malformed) as refused:
        decoded(RunState, text)
    assert len(str(refused.value)) < 300 and str(refused.value).isprintable()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@settings(max_examples=60)
@given(found=JSON, data=st.data())
def test_any_json_is_a_value_or_malformed(shape: Any, found: Any, data: st.DataObject) -> None:
    """Also where the answer is right but for one thing."""
    if shape in TRUE and data.draw(st.booleans()):
        right = json.loads(json.dumps(TRUE[shape]))
        right[data.draw(st.sampled_from(sorted(right)))] = found
        found = right
    text = json.dumps(found).encode()
    try:
        value = decoded(shape, text)
    except Malformed as refused:
        assert str(refused).isprintable()
        return
    assert isinstance(value, shape) and isinstance(hash(repr(value)), int)


@settings(max_examples=60)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decoded(Listing, data)


def test_a_value_in_a_message_is_short_and_harmless() -> None:
    assert shown("\x1b]0;title\x07" + "x" * 100).isprintable()
    assert len(shown("x" * 1000)) == 60
    assert shown(10**100_000) == "a number of 332,193 bits"
