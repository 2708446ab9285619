"""What a machine wrote is shown and never acts, whatever its shape."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model import RunRecord
from orchestrator.report.page import html_of, markdown_of, page_of, page_of_two
from orchestrator.report.page.two import Comparison
from orchestrator.runs.details import RunDetails
from tests.unit.report.page.runs import HOSTILE, WRONG, folder_of, hostile, read_back, record, trace_lines

_FRAME = "html head meta link title style script body header main footer nav section"
_TEXT = "div p h1 h2 h3 span b small code ul li a dl dt dd pre details summary output figure figcaption"
_DRAWN = "table thead tbody tr th td svg circle path line rect text"
_ALLOWED = {*_FRAME.split(), *_TEXT.split(), *_DRAWN.split()}


class Elements(HTMLParser):
    """Every element of a page, and its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]


def parsed(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    return found


def harmless(text: str) -> None:
    found = parsed(text)
    assert found.names <= _ALLOWED, found.names - _ALLOWED
    assert not [each for each in found.attributes if each[1].startswith("on") or each[1] in ("src", "style")]
    links = [value for _, key, value in found.attributes if key == "href"]
    assert all(value.startswith("#") or value == "data:," for value in links)
    assert text.count("<script") == 1
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)


def page(found: RunDetails) -> Any:
    return page_of(found, version="0.2.0", now=1_790_000_000.0)


def test_hostile_texts_everywhere_make_no_element(tmp_path: Path) -> None:
    evil = record(
        **{
            key: hostile(value)
            for key, value in record().as_json().items()
            if key not in ("schema", "run_id", "exit")
        }
    )
    lines = [hostile(line) if line["event"] == "header" else line for line in trace_lines()]
    found = read_back(
        tmp_path, evil, log=f"epoch 1 {HOSTILE} loss: 1\nepoch 2 loss: 0.5\n{HOSTILE}\n", lines=lines
    )
    text = html_of(page(found))
    harmless(text)
    assert "&lt;script&gt;" in text
    summary = re.sub(r"(?ms)^```\w+$.*?^```$", "", markdown_of(page(found)))
    assert "<script" not in summary and "<img" not in summary
    two = page_of_two(
        found,
        found,
        Comparison(hostile({"verdict": "DIVERGENT", "cause": "x", "recorded": [{"name": "n", "a": "a"}]})),
        version="",
        now=0.0,
    )
    harmless(html_of(two))


def test_markdown_makes_no_link_no_mention_and_no_fence() -> None:
    evil = "[x](https://evil.example) ![y](http://e) @someone www.evil.example | cell\n```\n# head"
    text = markdown_of(
        page(
            RunDetails(
                record(exit={"reason": "failed", "code": 1, "signal": None, "detail": evil}), tail=evil
            )
        )
    )
    body, _, fenced = text.partition("```text")
    assert (
        not re.search(r"(?<!\\)\]\(", body) and "://" not in body and "@" not in body and "www." not in body
    )
    assert fenced.count("```") == text.count("```") - 1
    assert text.count("\n# head") <= 1  # in the fence of the output alone


@pytest.mark.parametrize(
    "key", [key for key in record().as_json() if key not in ("schema", "run_id", "exit")]
)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: repr(value)[:20])
def test_a_part_of_another_type_leaves_the_rest_of_the_page(key: str, wrong: Any) -> None:
    made = page(RunDetails(record(**{key: wrong})))
    text = html_of(made)
    harmless(text)
    markdown_of(made)
    assert "digits-1" in text


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*at, key))


def with_at(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = with_at(copy[at[0]], at[1:], new)
    return copy


def test_any_value_at_any_place_leaves_a_page() -> None:
    whole = record().as_json()
    del whole["schema"]
    for number, at in enumerate(place for place in places(whole) if place and place != ("run_id",)):
        for wrong in (WRONG[number % len(WRONG)], WRONG[(number * 5 + 3) % len(WRONG)]):
            found = RunRecord(**{**with_at(whole, at, wrong), "path": "/r"})
            made = page(RunDetails(found))
            harmless(html_of(made))
        markdown_of(made)


def test_a_trace_of_nonsense_leaves_a_page(tmp_path: Path) -> None:
    chance = random.Random(5)
    for turn in range(20):
        lines = trace_lines(gpus=bool(turn % 2))
        for _ in range(8):
            line = chance.choice(lines)
            line[chance.choice(list(line))] = chance.choice([each for each in WRONG if each == each])
        made = page(read_back(tmp_path / str(turn), record(), lines=lines))
        harmless(html_of(made))


def test_a_large_run_stays_small(tmp_path: Path) -> None:
    """A week of samples, ten thousand files, twenty thousand epochs."""
    log = "".join(f"epoch {n} loss: {1 / (n + 1)} accuracy: {n / 1e5}\n" for n in range(20_000))
    steps = [
        {**line, "t": line["t"] + 12 * n, "up": line.get("up", 0.0) + 12 * n}
        for n in range(200)
        for line in trace_lines(gpus=True)
        if line["event"] == "sample" or n == 0
    ]
    many = [{"path": f"outputs/out/file-{n:05}", "sha256": "9" * 64, "bytes": 10} for n in range(10_000)]
    candidates = [
        {
            "words": "w" * 300,
            "outcome": "cleared",
            "why": "y" * 300,
            "kind": "probe",
            "topic": "",
            "seconds": 1,
        }
    ] * 500
    found = record(artifacts=many, parity={**dict(record().parity or {}), "candidates": candidates})
    text = html_of(page(read_back(tmp_path, found, log=log, lines=steps)))
    assert len(text.encode()) < 1_500_000


def test_nothing_leaves_the_page(tmp_path: Path) -> None:
    text = html_of(page(read_back(tmp_path, record())))
    assert "default-src 'none'" in unescape(text)
    assert "unsafe-inline" not in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    folder_of(tmp_path / "again", record())
