"""What runs by `scripts/test nightly` alone: rows of long tables, and slow tests whose kind another keeps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

NIGHTLY = os.environ.get("ORCH_TEST_NIGHTLY") == "1"
"""Whether this is the run of everything."""


def sampled(rows: Iterable[Any], always: Callable[[Any], bool]) -> list[Any]:
    """Parameters for each of `rows`; those that are not for `always` are marked for the nightly run."""
    return [row if always(row) else _at_night(row) for row in rows]


def _at_night(row: Any) -> Any:
    """The same parameter, with the mark; one that is a ParameterSet keeps its id and its marks."""
    if hasattr(row, "marks"):
        return row._replace(marks=(*row.marks, pytest.mark.nightly))
    values = row if isinstance(row, tuple) else (row,)
    return pytest.param(*values, marks=pytest.mark.nightly)


AT_NIGHT = {
    "tests/crash/test_kills.py": (
        "test_a_verb_that_was_killed_is_finished_by_itself_and_leaves_nothing[pull]",
        "test_the_same_of_real_machines",
    ),
    "tests/crash/test_kills_on_clouds.py": ("test_other_verbs[gcp-run]", "test_up_and_down[aws]"),
    "tests/e2e/test_adverse.py": (
        "test_a_result_that_equals_an_earlier_one_comes_home",
        "test_data_appear_where_the_script_expects_them",
        "test_down_in_another_folder_names_what_runs",
        "test_status_asks_the_machine_how_a_run_ended_that_nobody_followed",
        "test_up_killed_on_the_way_and_repeated_makes_one_machine[create.intent]",
        "test_what_the_machine_is_cannot_be_changed_by_train",
    ),
    "tests/e2e/test_aws.py": (
        "test_a_machine_can_prove_itself_by_its_console",
        "test_a_machine_made_without_an_answer_is_found_again[server-error]",
        "test_a_machine_made_without_an_answer_is_found_again[unknown]",
        "test_a_machine_with_another_host_key_is_refused",
        "test_two_ups_at_once_make_one_machine",
    ),
    "tests/e2e/test_aws_digits.py": ("test_three_commands",),
    "tests/e2e/test_aws_edges.py": (
        "test_a_spot_machine_that_went_without_a_word_is_preempted_all_the_same",
        "test_a_zone_that_fails_after_it_accepted_gives_way_to_the_next",
    ),
    "tests/e2e/test_checkpoint_writers.py": tuple(
        f"test_every_copy_of_a_writer_that_is_killed_anywhere_loads[{writer}]"
        for writer in ("backup", "h5", "marked", "pickled", "plain", "saved_model", "weights")
    ),
    "tests/e2e/test_first_contact.py": (
        "test_a_refused_machine_leaves_the_exit_code_and_the_way_out[gcp]",
        "test_a_setup_that_may_not_be_undone_is_not_called_clean[aws]",
        "test_a_setup_that_may_not_be_undone_is_not_called_clean[gcp]",
        "test_ended_in_the_middle_it_leaves_nothing[gcp]",
        "test_interrupted_in_its_setup_it_removes_that[gcp]",
        "test_killed_outright_the_next_call_removes_what_it_left[gcp]",
        "test_the_whole_loop_finds_no_belief_wrong",
    ),
    "tests/e2e/test_full_disk_here.py": (
        "test_a_disk_that_fills_during_run_leaves_the_command_that_ends_it",
    ),
    "tests/e2e/test_gang_parity.py": ("test_a_machine_that_reads_the_wrong_share_is_named_before_the_run",),
    "tests/e2e/test_gcp.py": (
        "test_a_host_key_that_changes_is_not_believed",
        "test_no_room_in_two_zones_and_a_machine_in_the_third[preempted]",
        "test_no_room_in_two_zones_and_a_machine_in_the_third[stockout]",
        "test_two_ups_at_once_are_one_machine",
    ),
    "tests/e2e/test_gcp_digits.py": ("test_the_digits_on_an_l4",),
    "tests/e2e/test_gcp_edges.py": (
        "test_a_machine_in_another_project_is_not_gone",
        "test_a_machine_that_powered_itself_off_is_named_with_its_cost",
        "test_a_preempted_run_is_no_lost_run",
        "test_a_spot_machine_taken_back_before_it_served_gives_way_to_the_next[0.0]",
    ),
    "tests/e2e/test_image.py": ("test_on_google_what_could_not_be_stored_leaves_nothing",),
    "tests/e2e/test_main_job.py": ("test_a_variable_of_this_shell_is_the_same_on_both_sides",),
    "tests/e2e/test_mlflow_server.py": ("test_the_client_of_mlflow_reads_what_orch_logged",),
    "tests/e2e/test_signals.py": ("test_interrupted_before_the_run_says_so",),
    "tests/e2e/test_observe_job.py": ("test_started_otherwise_and_run_to_its_end_it_is_the_same",),
    "tests/e2e/test_parity_verdicts.py": (
        "test_what_a_verdict_does[EQUIVALENT-]",
        "test_what_a_verdict_does[EQUIVALENT-one]",
        "test_what_a_verdict_does[EQUIVALENT-warn]",
        "test_what_a_verdict_does[IDENTICAL-one]",
    ),
    "tests/e2e/test_reserved.py": ("test_plan_up_train_down[held1]",),
    "tests/parity/test_core.py": tuple(
        f"test_it_is_called_what_it_is[{cause}]"
        for cause in (
            "an-augmentation-without-a-seed",
            "another-epsilon-of-normalisation",
            "another-metric",
            "fewer-steps",
            "hours-by-the-local-clock",
            "one-pixel-of-one-shard",
        )
    ),
    "tests/resume/test_resume_check.py": (
        "test_a_job_that_goes_on_at_another_place_is_told_so[loop.py-order--data position-2]",
        "test_a_job_that_goes_on_at_another_place_is_told_so[loop.py-resume--not resumed-0]",
        "test_a_job_that_restores_everything_is_exact[loop.py-dropout,statistics]",
        *(
            f"test_what_is_not_restored_is_named_and_confirmed_by_putting_it_back[loop.py-{lack}]"
            for lack in ("dropout-dropout-dropout random state", "rate-halving-learning rate")
        ),
    ),
    "tests/unit/replay/test_parity_trials.py": (
        "test_a_file_that_is_gone_since_hides_no_project[home]",
        "test_a_file_that_is_gone_since_hides_no_project[work/a]",
        "test_a_library_cache_is_not_the_cause_of_another_order",
        "test_an_interpreter_that_was_typed_as_a_relative_path",
        "test_an_overwritten_file_that_sets_the_seed_is_named_as_the_cause",
        "test_programs_of_other_names_are_compared_by_what_they_contain",
        "test_repetitions_have_the_home_folder_that_was_recorded",
        "test_what_a_notebook_passes_to_its_kernel_is_no_difference",
    ),
}
"""Tests of a file, or rows of one: the slowest of those whose promise another test holds too."""


def is_at_night(nodeid: str) -> bool:
    """Whether AT_NIGHT has the test with this node id, or all of its rows."""
    file, _, test = nodeid.partition("::")
    names = AT_NIGHT.get(file, ())
    return test in names or test.partition("[")[0] in names
