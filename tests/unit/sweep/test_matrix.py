"""The values of a sweep's parameters, as they are written."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.model.sweeps import Objective
from orchestrator.sweep.matrix import checked, combinations, parse_matrix, parse_objective, require_used

NAMES = st.text("abxyz", min_size=1, max_size=9)
VALUES = st.lists(st.text("aZ019+_/-", min_size=1, max_size=9), min_size=1, max_size=5, unique=True)
MATRICES = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)


@given(MATRICES)
def test_what_is_written_is_read_and_every_combination_is_there_once(matrix: dict[str, list[str]]) -> None:
    assert parse_matrix([f"{name}={','.join(values)}" for name, values in matrix.items()]) == matrix
    found = combinations(matrix)
    assert len({tuple(each.items()) for each in found}) == len(found) == math.prod(map(len, matrix.values()))
    assert all(list(each) == list(matrix) and all(each[n] in matrix[n] for n in matrix) for each in found)
    assert checked(matrix) == matrix


def test_a_range_is_whole_numbers_and_the_last_parameter_changes_first() -> None:
    matrix = parse_matrix(["lr=1e-3, 1e-4", "seed=1..3,10"])
    assert matrix == {"lr": ["1e-3", "1e-4"], "seed": ["1", "2", "3", "10"]}
    assert [list(each.values()) for each in combinations(matrix)[:2]] == [["1e-3", "1"], ["1e-3", "2"]]
    assert parse_matrix(["n=2..-1"]) == {"n": ["2", "1", "0", "-1"]}
    assert parse_matrix(["lr=1e-5..1e-1", "n=1,2"], search=True) == {"lr": ["1e-5..1e-1"], "n": ["1", "2"]}
    assert checked({"lr": [0.001, 2], "use": [True]}) == {"lr": ["0.001", "2"], "use": ["True"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lr"], "'lr' is not NAME=VALUE"),
        (["LR=1"], "'LR=1' is not NAME=VALUE"),
        (["lr=1,,2"], "lr has an empty value"),
        (["lr="], "lr has an empty value"),
        (["lr=1", "lr=2"], "gives lr twice"),
        (["lr=1,2,1"], "lr has 1 twice"),
        (["n=1..900000"], "a range of more than 100000"),
        (["lr=1e-5..1e-1"], "not a range of whole numbers; --search takes any range"),
    ],
)
def test_what_is_no_list_of_values_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        parse_matrix(words)
    assert (refused.value.next_command or "").startswith("orch sweep PROFILE --matrix lr=1e-3")


def test_no_parameter_and_too_many_points_are_refused() -> None:
    with pytest.raises(UsageError, match="at least one parameter"):
        checked({})
    with pytest.raises(UsageError, match=r"1000000 combinations; at most 100000"):
        combinations({"a": ["1"] * 1000, "b": ["1"] * 1000})
    with pytest.raises(UsageError, match="not a parameter's name and a list"):
        checked({"lr": "1e-3"})


def test_a_placeholder_without_a_value_names_the_parameter_that_was_meant() -> None:
    require_used({"lr": ["1"], "seed": ["2"]}, ["lr"], set())  # the seed is read from the environment
    with pytest.raises(UsageError, match=r"has \{lr\}, .* Did you mean --matrix lr=… instead of lrr\?"):
        require_used({"lrr": ["1"]}, ["lr"], set())
    with pytest.raises(UsageError, match=r"nothing gives batch a value\.$"):
        require_used({"lr": ["1"]}, ["lr", "batch"], set())


def test_the_objective_is_a_metric_and_a_direction() -> None:
    assert parse_objective(None) == Objective(None, largest=False)
    assert parse_objective("auc:max") == Objective("auc", largest=True)
    assert parse_objective("loss:min") == parse_objective("loss") == Objective("loss", largest=False)
    for text in ("auc:most", ":max", ""):
        with pytest.raises(UsageError, match="is not METRIC"):
            parse_objective(text)
