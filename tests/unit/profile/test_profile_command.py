"""Commands are lists of arguments; what only a shell would understand is refused, and quoted it passes."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.profile.command import parse_command


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("python train.py --epochs 12", ["python", "train.py", "--epochs", "12"]),
        ("python train.py 'a b' \"c d\" e\\ f", ["python", "train.py", "a b", "c d", "e f"]),
        ("python train.py \\\n  --lr 0.1\n", ["python", "train.py", "--lr", "0.1"]),
        ('python -c \'print(1); f("$HOME" > "x")\'', ["python", "-c", 'print(1); f("$HOME" > "x")']),
        ('python train.py "a|b;c*"', ["python", "train.py", "a|b;c*"]),
        ("python train.py \\$HOME a\\|b", ["python", "train.py", "$HOME", "a|b"]),
        ("python n=[1,2] a?b x#y a~b 5$ ''", ["python", "n=[1,2]", "a?b", "x#y", "a~b", "5$", ""]),
        ("sh -c 'a && b | c > d'", ["sh", "-c", "a && b | c > d"]),
        ("/bin/true", ["/bin/true"]),
    ],
)
def test_lines(line: str, arguments: list[str]) -> None:
    assert list(parse_command(line)) == arguments


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a | b", "'|'"),
        ("a || b", "'||'"),
        ("a && b", "'&&'"),
        ("a &", "'&'"),
        ("a; b", "';'"),
        ("a > b", "'>'"),
        ("a >> b", "'>>'"),
        ("a 2>&1", "'>'"),
        ("a < b", "'<'"),
        ("(a)", "'('"),
        ("a $(b)", "'$('"),
        ("a `b`", "'`'"),
        ('a "$(b)"', "'$('"),
        ('a "`b`"', "'`'"),
        ("a $HOME", "'$H'"),
        ("a ${HOME}", "'${'"),
        ('a "$HOME"', "'$H'"),
        ("a *.txt", "'*'"),
        ("a ~/x", "'~'"),
        ("a # b", "'#'"),
        ("a\nb", "a new line"),
    ],
)
def test_what_only_a_shell_understands(line: str, found: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_command(line)
    assert str(caught.value).startswith(f"{found} has a meaning only in a shell")
    assert parse_command(("sh", "-c", line)) == ("sh", "-c", line)


@pytest.mark.parametrize("value", ["", "  ", (), ("",), 3, None, ("a", 3), {"a": "b"}])
def test_what_is_no_command(value: object) -> None:
    with pytest.raises(ValueError):
        parse_command(value)


ARGUMENTS = st.one_of(st.text(max_size=12), st.text(alphabet="\\\n'\" $`*|~#a", max_size=12))


@given(st.lists(ARGUMENTS, min_size=1, max_size=5))
def test_what_a_shell_would_be_given_quoted_arrives_as_it_is(arguments: list[str]) -> None:
    line = shlex.join(["python", *arguments])
    assert parse_command(line + " \\\n") == ("python", *arguments)
