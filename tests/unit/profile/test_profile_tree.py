"""The reader of YAML: what it takes for what, where it says things are, and that nothing gets past it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ProfileError
from orchestrator.profile import load
from orchestrator.profile.load import to_data
from orchestrator.profile.tree import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    ListNode,
    MapNode,
    Place,
    Refused,
    plain_value,
    read_tree,
)


def data(text: str) -> object:
    return to_data(read_tree(text.encode(), "p.yaml"))


def refusal(raw: bytes) -> str:
    with pytest.raises(Refused) as caught:
        read_tree(raw, "p.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("FALSE", False),
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        # what YAML 1.1 readers make into something else
        ("yes", "yes"),
        ("no", "no"),
        ("On", "On"),
        ("y", "y"),
        ("1:30", "1:30"),
        ("190:20:30.15", "190:20:30.15"),
        ("010", "010"),
        ("0x1F", "0x1F"),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("=", "="),
        # what no float holds exactly or at all
        ("1234567890123456789", "1234567890123456789"),
        ("1e999", "1e999"),
        ("९", "९"),
    ],
)
def test_plain_scalars(text: str, value: object) -> None:
    found = plain_value(text)
    assert found == value and type(found) is type(value)


def test_quoted_scalars_are_text() -> None:
    assert data("a: '1'\nb: \"true\"\nc: ''\nd: |-\n  5\n") == {"a": "1", "b": "true", "c": "", "d": "5"}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert data("on: 1\n1: 2\n~: 3\n") == {"on": 1, "1": 2, "~": 3}


def test_places_count_from_one_in_characters() -> None:
    tree = read_tree("\ufeffé: [ü, 'x']\nb:\n  c: 1\n".encode(), "p.yaml")
    assert isinstance(tree, MapNode)
    items = tree.items["é"]
    assert isinstance(items, ListNode)
    assert [str(item.place) for item in items.items] == ["p.yaml:1:5", "p.yaml:1:8"]
    inner = tree.items["b"]
    assert isinstance(inner, MapNode)
    assert (inner.keys["c"], inner.items["c"].place) == (Place("p.yaml", 3, 3), Place("p.yaml", 3, 6))


def test_bounds() -> None:
    assert "larger than 256 KiB" in refusal(b"a" * (MAX_BYTES + 1))
    assert data("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert "levels deep" in refusal(b"[" * (MAX_DEPTH + 1))
    assert "levels deep" in refusal(b"[" * 100_000)
    assert "levels deep" in refusal(b"- " * 100_000)
    assert f"more than {MAX_NODES} values" in refusal(b"- a\n" * (MAX_NODES + 1))


@pytest.mark.parametrize(
    "raw",
    [
        b'"\\U00110000"',  # beyond Unicode
        b'"\\uD800"',  # half a pair
        b"a: \x07",
        b"%YAML 9999999999999999999.1\n---\na: 1",
        b"%TAG ! tag:x,2000:\n--- !y\na: 1",
        b"a: *b",
        b"a: &b 1",
        b"a: !!python/object/apply:os.system [ls]",
        b"<<: {a: 1}",
        b"? [a]\n: 1",
        b"? {a: 1}\n: 1",
        b"a: 1\na: 2",
        b"--- 1\n--- 2",
        b"a: 'b",
        b"a: [",
        b"\xff\xfe",
        b"@",
        b"a: b: c",
    ],
)
def test_refused_at_a_place(raw: bytes) -> None:
    assert refusal(raw).startswith("p.yaml:")


def test_a_billion_laughs_is_refused_in_one_line_at_its_first_anchor() -> None:
    text = "a: &a [x, x]\n" + "".join(
        f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(Refused) as caught:
        read_tree(text.encode(), "p.yaml")
    (problem,) = caught.value.problems
    assert str(problem.place) == "p.yaml:1:4" and "more than 8 anchors and aliases" in problem.text


WORDS = """
version name cloud region zone resources max_duration stack code data train parity command env outputs path
source target prepare cpus memory accelerator disk spot lock python from_env local aws gcp any 1 4 GiB
90m T4 L4:2 python us-east-1 ~/x C:\\x /data ../x true no 1:30 ${A} * & ! | > - ? : [ ] { } , # ' " % @ ` <<
"""
ATOMS = st.sampled_from(WORDS.split())
LINES = st.lists(
    st.tuples(st.integers(0, 6), st.lists(ATOMS, min_size=1, max_size=4)).map(
        lambda line: " " * line[0] + ": ".join(line[1])
    ),
    max_size=12,
).map("\n".join)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Something with the form of a profile, and any values in it."""
    value: st.SearchStrategy[object] = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), ATOMS),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(ATOMS, inner, max_size=3)),
        max_leaves=6,
    )
    keys = [
        "version",
        "name",
        "cloud",
        "region",
        "zone",
        "resources",
        "stack",
        "code",
        "data",
        "train",
        "parity",
    ]
    document = {key: draw(value) for key in keys if draw(st.booleans())}
    form: dict[str, object] = {"version": 1, "name": "a", "cloud": "local", "train": {"command": draw(value)}}
    return yaml.safe_dump(form | document, allow_unicode=True)


OVERRIDES = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.tuples(st.lists(ATOMS, max_size=4), ATOMS).map(lambda t: f"{'.'.join(t[0])}={t[1]}"),
    ),
    max_size=2,
)


@given(
    st.one_of(
        st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace")),
        LINES.map(str.encode), documents().map(str.encode),
    ),
    OVERRIDES,
    st.booleans(),
)  # fmt: skip
def test_whatever_is_written_is_a_profile_or_a_profile_error(
    raw: bytes, flags: list[str], files: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.yaml"
        path.write_bytes(raw)
        try:
            profile = load(path, overrides=flags, environ={"HOME": folder}, files=files)
        except ProfileError as error:
            assert str(error).startswith((f"{path}:", "--set"))
        else:
            assert repr(profile) and profile.need() and len(profile.digest) == 64


@pytest.mark.parametrize(
    "text",
    [
        "data: [{source: " + "a/" * 120_000 + "}]",
        "train: {command: " + "a " * 120_000 + "}",
        "code: {path: '" + "$" * 240_000 + "'}",
        "".join(f"memroy{number}: 1\n" for number in range(4_000)),
        "".join(f"- {{source: a{number}/{'b/' * 10}}}\n" for number in range(3_000)),
        '"a" ' * 60_000,
    ],
    ids=["deep path", "long command", "dollars", "unknown keys", "many data", "scalars"],
)
def test_large_texts_are_refused_in_moderate_work(text: str, tmp_path: Path) -> None:
    """None of these is quadratic: with the test run's time limit, a regression fails."""
    path = tmp_path / "p.yaml"
    path.write_text("version: 1\n" + text)
    with pytest.raises(ProfileError):
        load(path, environ={}, files=True)
