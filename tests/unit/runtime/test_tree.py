"""Trees as facts: digest, difference, hostile paths, frames."""

from __future__ import annotations

import io
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runtime.transfer import frames, tree
from orchestrator.runtime.transfer.confined import Confined
from orchestrator.runtime.transfer.entries import Row, difference, digest, first_difference, hostile, ordered
from orchestrator.runtime.transfer.squeeze import Squeeze

HASH = "ab" * 32
HASHES = st.sampled_from([HASH, "cd" * 32, "ef" * 32])
PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
ROWS = st.lists(
    st.one_of(
        st.builds(
            lambda path, mode, hashed: Row(path, "file", 3, mode, hashed),
            PATHS,
            st.sampled_from([0o644, 0o755]),
            HASHES,
        ),
        st.builds(lambda path: Row(path, "dir", mode=0o755), PATHS),
        st.builds(lambda path, target: Row(path, "link", target=target), PATHS, PATHS),
    ),
    unique_by=lambda row: row.path,
    max_size=8,
)


@given(ROWS, st.randoms())
def test_the_digest_is_of_the_tree_and_not_of_its_order(rows: list[Row], random: object) -> None:
    mixed = list(rows)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert digest(mixed) == digest(rows)


@given(ROWS, ROWS)
def test_equal_digest_means_equal_rows(one: list[Row], other: list[Row]) -> None:
    same = ordered(one) == ordered(other)
    assert (digest(one) == digest(other)) == same
    assert (first_difference(one, other) is None) == same
    assert bool(difference(one, other)) != same


def test_every_field_counts() -> None:
    row = Row("p", "file", 1, 0o644, HASH, "")
    changed = [
        row._replace(**{name: value})
        for name, value in zip(Row._fields, ["q", "dir", 2, 0o755, "cd", "t"], strict=True)
    ]
    assert len({digest([each]) for each in [row, *changed]}) == 7


def test_the_encoding_is_fixed() -> None:
    """Both sides must agree across versions: a change here is a change of the protocol."""
    rows = [
        Row("é", "file", 3, 0o644, HASH),
        Row("a\udcff", "dir", mode=0o755),
        Row("l", "link", target="x y"),
    ]
    assert digest(rows) == "36314e6096b8da8bbfcd55fd7c37467fff3f1cdcd12ec2d6edd221b0e7f00580"
    assert [row.path for row in ordered(rows)] == ["a\udcff", "l", "é"]


@given(ROWS, ROWS)
def test_a_difference_names_what_separates_two_trees(have: list[Row], want: list[Row]) -> None:
    change = difference(have, want)
    after = {row.path: row for row in have if row.path not in change.remove}
    after.update({want[number].path: want[number] for number in (*change.content, *change.shape)})
    assert after == {row.path: row for row in want}
    held = {(row.path, row.digest) for row in have if row.kind == "file"}
    assert all((want[n].path, want[n].digest) not in held for n in change.content)


# ---------------------------------------------------------------- hostile paths

FILE = Row("ok", "file", 1, 0o644, HASH)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a/..",
        "..",
        ".",
        "a/./b",
        "",
        "a//b",
        "a/",
        "C:/x",
        "c:",
        "c:\\x",
        "a\0b",
    ],
)
@pytest.mark.parametrize("sealed", [True, False])
def test_hostile_paths(path: str, sealed: bool) -> None:
    assert [found for found, _ in hostile([FILE, FILE._replace(path=path)], sealed=sealed)][:1] == [path]


@pytest.mark.parametrize(
    "path", ["a", "a b", "…", "..a", "a..", "a/b.c/d", "é", "\udcff", "-rf", "a:b", "~", "$x", "a\nb"]
)
def test_harmless_paths(path: str) -> None:
    assert hostile([FILE._replace(path=path)], sealed=True) == []


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("a", "/etc"),
        ("a", ".."),
        ("a", "../x"),
        ("d/a", "../../x"),
        ("a", "b/../../x"),
        ("a", "b/.."),
        ("a", "C:/x"),
        ("a", ""),
        ("a", "x\0y"),
        ("d/e/a", "../../../x"),
        ("a", "./../x"),
    ],
)
def test_links_that_lead_out(path: str, target: str) -> None:
    assert [found for found, _ in hostile([Row(path, "link", target=target)], sealed=True)] == [path]


@pytest.mark.parametrize(
    ("path", "target"), [("a", "b"), ("d/a", "../b"), ("d/e/a", "../../b/c"), ("a", "./b"), ("a", ".")]
)
def test_links_that_stay(path: str, target: str) -> None:
    assert hostile([Row(path, "link", target=target)], sealed=True) == []


@pytest.mark.parametrize(
    "rows",
    [
        [FILE, FILE],
        [FILE, Row("ok/x", "file", 1, 0o644, HASH)],
        [Row("l", "link", target="d"), Row("l/x", "file", 1, 0o644, HASH)],
        [Row("x", "device")],
        [Row("x", "special")],
        [Row("x", "file", 1, 0o644, "nonsense")],
        [Row("x", "file", -1, 0o644, HASH)],
    ],
)
def test_trees_that_cannot_be(rows: list[Row]) -> None:
    assert hostile(rows, sealed=False)


@pytest.mark.parametrize("other", ["OK", "oK"])
def test_names_that_some_file_systems_take_for_one(other: str) -> None:
    assert hostile([FILE, FILE._replace(path=other)], sealed=True)
    assert not hostile([FILE, FILE._replace(path=other)], sealed=False)
    assert hostile([FILE._replace(path="D/x"), FILE._replace(path="d/y")], sealed=True)
    assert hostile([FILE._replace(path="e\u0301"), FILE._replace(path="\u00e9")], sealed=True)


# ---------------------------------------------------------------- confined


def test_no_path_is_followed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("theirs")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to("../outside")
    with Confined(str(tmp_path / "root")) as inside:
        for act in (
            lambda: inside.open_file("link/file"),
            lambda: inside.remove("link/file"),
            lambda: inside.set_mode("link/file", 0o777),
            lambda: inside.make_folder("link/new", 0o755),
            lambda: inside.make_link("link/new", "x"),
        ):
            with pytest.raises(OSError):
                act()
        with pytest.raises(OSError):
            inside.open_file("link")
        assert inside.look("link/file") is None
        inside.remove("link")
    with pytest.raises(OSError):
        Confined(str(tmp_path / "root" / "link"))
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["file"]
    assert (tmp_path / "outside" / "file").read_text() == "theirs"


# ---------------------------------------------------------------- frames


@given(st.lists(st.binary(max_size=5000), max_size=5), st.integers(1, 4000))
def test_bodies_arrive_whole_in_pieces_of_any_size(bodies: list[bytes], step: int) -> None:
    out = io.BytesIO()
    for body in bodies:
        pieces = [body[:100], body[100:]] if len(body) > 100 else [body] if body else []
        frames.send_body(out.write, iter(pieces), Squeeze())
    source = io.BytesIO(out.getvalue())
    heard = [b"".join(frames.receive_body(lambda size: source.read(min(size, step)))) for _ in bodies]
    assert heard == bodies


def test_a_body_that_cannot_be_read_says_why_and_others_follow() -> None:
    def failing():  # type: ignore[no-untyped-def]
        yield b"some"
        raise PermissionError(13, "Permission denied")

    out = io.BytesIO()
    frames.send_body(out.write, failing(), Squeeze())
    frames.send_body(out.write, iter([b"next"]), Squeeze())
    source = io.BytesIO(out.getvalue())
    with pytest.raises(frames.Gone, match="Permission denied"):
        list(frames.receive_body(source.read))
    assert list(frames.receive_body(source.read)) == [b"next"]


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\0\0\0\5abc", b"\0\0\0\3abc", b"\xf0\0\0\0"])
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(frames.Broken):
        frames.receive(io.BytesIO(data).read)


# ---------------------------------------------------------------- what is there


def test_a_survey_names_what_it_cannot_send(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "empty").mkdir()
    listed = tree.survey(str(tmp_path))
    assert sorted(listed.special) == ["pipe", "socket"]
    assert [row for row, _ in listed.found] == [
        Row("empty", "dir", mode=0o755),
        Row("gone", "link", target="nowhere"),
    ]


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY))
    rows, _ = tree.read(str(tmp_path), tree.survey(str(tmp_path)), {})
    assert [row.path for row in rows] == ["\udcff\udcfe"]


def test_a_file_that_vanishes_between_the_looks_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    listed = tree.survey(str(tmp_path))
    (tmp_path / "a").unlink()
    assert tree.read(str(tmp_path), listed, {}) == ([], {})
    assert listed.unreadable == [("a", "No such file or directory")]


def test_a_folder_that_became_a_link_shows_nothing_of_outside(tmp_path: Path) -> None:
    """The swap comes between a folder's listing and what is done by it: names, hashes and links alike."""
    outside, top = tmp_path / "outside", tmp_path / "top"
    for place in (outside, top / "deep"):
        place.mkdir(parents=True)
        (place / "file").write_text(place.name)
    (outside / "secret").write_text("secret")

    def swap() -> None:
        (top / "deep").rename(tmp_path / "was")
        (top / "deep").symlink_to(outside)

    class Swapping(tree.Chooser):
        def keep(self, path: str, is_folder: bool) -> bool:  # noqa: ARG002
            if is_folder:
                swap()
            return True

    listed = tree.survey(str(top), Swapping())
    assert [found.row.path for found in listed.found] == []
    assert [path for path, _ in listed.unreadable] == ["deep"]
    (top / "deep").unlink()
    (tmp_path / "was").rename(top / "deep")
    listed = tree.survey(str(top))
    swap()
    rows, known = tree.read(str(top), listed, {})
    assert [row.path for row in rows] == ["deep"] and not known
    assert [path for path, _ in listed.unreadable] == ["deep/file"]
