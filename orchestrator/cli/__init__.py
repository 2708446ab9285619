"""Door 2: parse, call the api, render, and leave with the right exit code."""

from __future__ import annotations


def main() -> None:
    from orchestrator.cli.app import app

    app()
