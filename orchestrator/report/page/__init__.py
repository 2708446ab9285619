"""The page of a run, two, a sweep or a lease: its content as data, rendered as HTML, Markdown and JSON."""

from orchestrator.report.page.build import page_of, page_of_two
from orchestrator.report.page.html import html_of
from orchestrator.report.page.lease import page_of_lease
from orchestrator.report.page.markdown import markdown_of
from orchestrator.report.page.model import Page, State
from orchestrator.report.page.sweep import page_of_sweep, params_of

__all__ = [
    "Page",
    "State",
    "html_of",
    "markdown_of",
    "page_of",
    "page_of_lease",
    "page_of_sweep",
    "page_of_two",
    "params_of",
]
