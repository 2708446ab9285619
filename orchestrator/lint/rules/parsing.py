"""ORC611-613: text and times whose parsing depends on the settings of one computer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import argument, is_none, source, texts, unclear

ENCODING = Rule(
    "ORC611",
    "default-encoding",
    Severity.WARNING,
    "a text file is read without an encoding",
    "The default depends on locale and system: non-ASCII letters are read wrongly, or are an error.",
    'Name it: open(path, encoding="utf-8").',
)
LOCALE = Rule(
    "ORC612",
    "locale-parsing",
    Severity.WARNING,
    "names of months and days, or decimal commas, read by the locale",
    "Under another locale 'Mai' or '1,5' is an error, or another number.",
    "Use formats that do not depend on the locale: ISO dates, `decimal=','` in pandas, no setlocale.",
)
TIMEZONE = Rule(
    "ORC613",
    "local-time",
    Severity.WARNING,
    "a time converted by the machine's time zone",
    "Cloud machines use UTC: hours and days shift, and so do features computed from them.",
    "Pass tz=datetime.UTC, or use time.gmtime and calendar.timegm.",
)

_LOCALE_CALLS = {
    "locale.atof",
    "locale.atoi",
    "locale.setlocale",
    "locale.strxfrm",
    "locale.strcoll",
    "locale.delocalize",
    "locale.getpreferredencoding",
    "locale.getdefaultlocale",
}
_NAMES = re.compile(r"%[-]?[aAbBcpxX]")
_HOURS = {"hour", "minute", "day", "weekday", "isoweekday"}
_TIME_CALLS = {
    "time.mktime",
    "time.localtime",
    "datetime.datetime.fromtimestamp",
    "datetime.date.fromtimestamp",
}


@module_check(ENCODING)
def check_encoding(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        if _reads_text(module, call):
            yield hit(ENCODING, module.snippet, call, f"{source(call.func)[:40]} without encoding")


def _reads_text(module: Module, call: ast.Call) -> bool:
    if argument(call, -1, "encoding") is not None or unclear(call):
        return False
    name = module.called(call)
    if name in ("open", "io.open"):
        return _mode(module, argument(call, 1, "mode")) and len(call.args) < 4
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method == "read_text":
        return not call.args
    if method == "open" and _is_path(module, call.func.value):  # type: ignore[attr-defined]
        return _mode(module, argument(call, 0, "mode")) and len(call.args) < 3
    return False


def _mode(module: Module, node: ast.AST | None) -> bool:
    """Whether a mode reads text, which is the default of open."""
    if node is None:
        return True
    modes = texts(module, node)
    return bool(modes) and all("b" not in mode and ("r" in mode or "+" in mode) for mode in modes)


def _is_path(module: Module, node: ast.AST) -> bool:
    value = module.value(node)
    return module.called(value).startswith("pathlib.") or (
        isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)
    )


@module_check(LOCALE, TIMEZONE)
def check_locale(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        name = module.called(call)
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in _LOCALE_CALLS:
            yield hit(LOCALE, module.snippet, call, f"{name} depends on the machine's locale")
        elif (
            method == "strptime"
            and any(_NAMES.search(text) for text in texts(module, argument(call, 1, "format")))
        ) or (
            name == "pandas.to_datetime"
            and any(_NAMES.search(t) for t in texts(module, argument(call, -1, "format")))
        ):
            yield hit(LOCALE, module.snippet, call, "names of months, days or AM/PM are read by the locale")
        elif (name == "float" and call.args and _comma(module, call.args[0])) or (
            method == "astype" and _comma_column(module, call)
        ):
            yield hit(LOCALE, module.snippet, call, "a decimal comma is replaced by hand")
        elif name in _TIME_CALLS and not _zoned(call):
            yield hit(TIMEZONE, module.snippet, call, f"{name} uses the machine's time zone")
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr in _HOURS and _now(module, node.value):
            yield hit(TIMEZONE, module.snippet, node, f"{source(node)} is the machine's {node.attr}")


def _now(module: Module, node: ast.AST) -> bool:
    value = module.value(node)
    bare = isinstance(value, ast.Call) and not (value.args or value.keywords)
    return bare and module.called(value) in ("datetime.datetime.now", "datetime.datetime.today")


def _comma_column(module: Module, call: ast.Call) -> bool:
    """Whether this is `column.str.replace(",", ".").astype(float)`."""
    to = argument(call, 0, "dtype")
    floats = module.dotted(to) in ("float", "numpy.float32", "numpy.float64") or "float" in texts(module, to)
    before = call.func.value if isinstance(call.func, ast.Attribute) else None
    return floats and before is not None and _comma(module, before)


def _comma(module: Module, node: ast.AST) -> bool:
    """Whether this is `float(text.replace(",", "."))`, or a number with a decimal comma, but no thousands
    separator.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace":
        return "," in texts(module, argument(node, 0)) and "." in texts(module, argument(node, 1))
    return any(re.fullmatch(r"\s*-?\d+,\d+\s*", text) for text in texts(module, node))


def _zoned(call: ast.Call) -> bool:
    given = argument(call, 1, "tz")
    return unclear(call) or (given is not None and not is_none(given))
