"""The page of one run or two: data structures for its content, rendered as HTML, Markdown and JSON."""

from orchestrator.report.page.build import page_of, page_of_two
from orchestrator.report.page.html import html_of
from orchestrator.report.page.markdown import markdown_of
from orchestrator.report.page.model import Page, State

__all__ = ["Page", "State", "html_of", "markdown_of", "page_of", "page_of_two"]
