"""Every kind of error has one page, which its message names; there are no others."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator import errors
from orchestrator.api.explaining import explain
from orchestrator.cli.app import app
from orchestrator.errors import Fault, OrchError, ProviderError, StorageError, StorageFault, UsageError
from orchestrator.lint import RULES
from orchestrator.model.error_page import page_of
from orchestrator.report.explained import PAGES
from orchestrator.session.buckets import DataChanged
from scripts import error_docs
from tests.unit.repository.test_docs import ROOT

KINDS = sorted(
    name
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, OrchError) and kind not in (OrchError, ProviderError)
)


def raised() -> Iterator[OrchError]:
    """One of every kind, and of every fault of a provider."""
    for name in KINDS:
        kind = getattr(errors, name)
        error: Any = kind.__new__(kind)
        OrchError.__init__(error, "So.")
        yield error
    for fault in Fault:
        yield ProviderError(fault, "So.")


def test_every_error_has_a_page_with_its_exit_code_and_every_page_an_error() -> None:
    found = {page_of(error): error.exit_code for error in raised()}
    found["interrupted"] = errors.EXIT_INTERRUPTED  # no error, but told as one with --json
    assert set(found) == set(PAGES)
    assert all(code in PAGES[page].exits for page, code in found.items())


def test_a_kind_of_another_room_has_the_page_of_what_it_is_an_instance_of() -> None:
    assert page_of(DataChanged("gs://a", ["x"], [], [])) == "sync"
    assert page_of(StorageError(StorageFault.UNKNOWN, "So.")) == "storage"


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_says_all_that_is_to_be_said(page: Any) -> None:
    for text in (page.title, page.what, page.left, page.next):
        assert text.strip() and "  " not in text
    assert all(text.endswith(".") for text in (page.what, page.left, page.next))
    assert not page.title.endswith(".")


@pytest.mark.parametrize("word", ["run-lost", "RunLost", "runlost", "RUN_LOST"])
def test_a_code_and_a_kind_lead_to_one_page(word: str) -> None:
    assert explain(word) == (PAGES["run-lost"],)


def test_kinds_whose_names_end_in_error_are_found_by_both_names() -> None:
    assert explain("HostKeyError") == explain("host-key") == (PAGES["host-key"],)


def test_an_exit_code_has_all_its_pages() -> None:
    assert [page.code for page in explain("7")] == [
        "stack-mismatch", "parity-mismatch", "resume-refused", "data-not-sent",
    ]  # fmt: skip


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_of_lint_is_explained_by_id_and_by_name(rule: Any) -> None:
    (page,) = explain(rule.id)
    assert (page.what, page.next, page.exits) == (rule.why, rule.fix, (9,))
    assert explain(rule.name) == explain(rule.id.lower()) == (page,)


def test_what_has_no_page_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="Similar codes: run-lost"):
        explain("runlost2")
    for word in ("", "99", "../errors"):
        with pytest.raises(UsageError, match="no page"):
            explain(word)


def test_an_error_names_its_page_for_people_and_for_scripts() -> None:
    told = CliRunner().invoke(app, ["explain", "nothing-like-it"])
    assert told.exit_code == 2 and told.stderr.endswith("\nMore: orch explain usage\n")
    said = json.loads(CliRunner().invoke(app, ["explain", "nothing-like-it", "--json"]).stdout)
    assert (said["error"]["code"], said["error"]["kind"]) == ("usage", "UsageError")


def test_without_a_code_all_are_listed() -> None:
    shown = CliRunner().invoke(app, ["explain"]).stdout
    assert [line.split()[0] for line in shown.splitlines()] == list(PAGES)
    told = json.loads(CliRunner().invoke(app, ["explain", "--json"]).stdout)
    assert [page["code"] for page in told["pages"]] == list(PAGES)


def test_the_page_of_errors_is_current() -> None:
    assert (ROOT / "docs/errors.md").read_text() == error_docs.text()
