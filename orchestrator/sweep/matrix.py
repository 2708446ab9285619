"""Parse the values of a sweep's parameters: `lr=1e-3,1e-4`, `seed=1..5`."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from orchestrator.errors import UsageError
from orchestrator.model.sweeps import Objective
from orchestrator.profile.values import PARAMETER_PATTERN

MOST_POINTS = 100_000
_RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})")
PROFILE_IS = "PROFILE: its file, such as orch.yaml"
_EXAMPLE = "--matrix lr=1e-3,1e-4 --matrix seed=1..5"


def parse_matrix(words: Sequence[str], *, search: bool = False) -> dict[str, list[str]]:
    """Return the values of each parameter, in the order of the words; for a `search`, ranges are not
    expanded. Raises UsageError.
    """
    matrix: dict[str, list[str]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not re.fullmatch(PARAMETER_PATTERN, name):
            raise _refused(f"--matrix {word!r} is not NAME=VALUE,VALUE with a name in lower-case letters")
        if name in matrix:
            raise _refused(
                f"--matrix gives {name} twice; write all its values in one --matrix, separated by commas"
            )
        matrix[name] = [text.strip()] if search and ".." in text else _values(name, text)
    return matrix


def parse_objective(text: str | None) -> Objective:
    """Return the objective of `val_accuracy:max` or `loss`. Raises UsageError."""
    name, colon, goal = (text or "").partition(":")
    if (colon and goal not in ("min", "max")) or (text is not None and not name):
        raise UsageError(
            f"--objective {text!r} is not METRIC, METRIC:min or METRIC:max.",
            next_command=f"orch sweep PROFILE {_EXAMPLE} --objective val_accuracy:max    # {PROFILE_IS}",
        )
    return Objective(name or None, goal == "max")


def checked(matrix: Mapping[str, Sequence[object]]) -> dict[str, list[str]]:
    """Return a matrix from a call in Python, with its values as strings. Raises UsageError as `parse_matrix`
    does.
    """
    for name, values in matrix.items():
        if not re.fullmatch(PARAMETER_PATTERN, name) or isinstance(values, str):
            raise _refused(f"The matrix has {name}={values!r}, not a parameter's name and a list of values")
    if not matrix:
        raise _refused("A sweep needs the values of at least one parameter")
    return {name: _distinct(name, [str(value) for value in values]) for name, values in matrix.items()}


def combinations(matrix: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return every combination of values; those of the last parameter change first. Raises UsageError."""
    count = 1
    for values in matrix.values():
        count *= len(values)
    if count > MOST_POINTS:
        raise _refused(f"The matrix has {count} combinations; at most {MOST_POINTS} are allowed")
    return [dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())]


def require_used(matrix: Mapping[str, Sequence[str]], placeholders: Sequence[str], params: set[str]) -> None:
    """Raise UsageError if the command has a placeholder without a value.

    `placeholders`: the names in braces that the profile gives no value; `params`: those to which it does.
    """
    missing = [name for name in placeholders if name not in matrix]
    if not missing:
        return
    unused = [name for name in matrix if name not in placeholders and name not in params]
    near = get_close_matches(missing[0], unused, n=1, cutoff=0.5)
    advice = f" Did you mean --matrix {missing[0]}=… instead of {near[0]}?" if near else ""
    raise _refused(f"The command has {{{missing[0]}}}, and nothing gives {missing[0]} a value.{advice}")


def _values(name: str, text: str) -> list[str]:
    values: list[str] = []
    for part in text.split(","):
        if found := _RANGE.fullmatch(part.strip()):
            first, last = int(found[1]), int(found[2])
            if abs(last - first) >= MOST_POINTS:
                raise _refused(f"--matrix {name}={part}: a range of more than {MOST_POINTS} values")
            values += map(str, range(first, last + 1) if first <= last else range(first, last - 1, -1))
        elif ".." in part:
            raise _refused(
                f"--matrix {name}={part} is not a range of whole numbers; --search takes any range"
            )
        else:
            values.append(part.strip())
    return _distinct(name, values)


def _distinct(name: str, values: list[str]) -> list[str]:
    if not values or not all(values) or any("\n" in value for value in values):
        raise _refused(f"--matrix {name} has an empty value")
    twice = next((value for value, count in Counter(values).items() if count > 1), None)
    if twice is not None:
        raise _refused(f"--matrix {name} has {twice} twice; both would be the same run")
    return values


def _refused(text: str) -> UsageError:
    ends = text.endswith(("?", "."))
    again = f"orch sweep PROFILE {_EXAMPLE}    # {PROFILE_IS}"
    return UsageError(text if ends else f"{text}.", next_command=again)
