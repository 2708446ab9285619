"""Charts as SVG that fills the width of its container: lines are stretched, text is not."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

from orchestrator.report.page.elements import Attributes, Markup, el, joined
from orchestrator.report.page.model import Chart, Line, Parts, Stacked
from orchestrator.report.page.scales import Scale, along, clock, scale, shown

HEIGHT = 132
_BELOW = 24
_ABOVE = 8
_WIDE = 1000
_LEFT = 70
_MOST = 600


def chart(found: Chart) -> Markup:
    """Return a chart of lines over one axis, with a legend if there are several."""
    y = scale([v for line in found.lines for v in line.ys], found.unit, limit=found.limit, log=found.log)
    x = along(found.begin, found.end, found.axis)
    legend = (
        _legend(found) if len(found.lines) > 1 or any(line.dashed for line in found.lines) else Markup("")
    )
    caption = el("figcaption", None, el("span", {"class": "name"}, found.title), legend, _readout())
    drawn = _plot(
        x, y, [_line(line, x, y, found.filled) for line in found.lines], _limit(found, y), _data(found)
    )
    note = el("p", {"class": "note"}, found.note) if found.note else Markup("")
    axis = el("p", {"class": "axis"}, found.axis) if found.axis not in ("", "s") else Markup("")
    return el(
        "figure", {"class": "chart", "role": "img", "aria-label": _spoken(found)}, caption, drawn, axis, note
    )


def _spoken(found: Chart) -> str:
    """Describe the chart in words, for screen readers."""
    told = [
        f"{line.name}: from {shown(line.ys[0], found.unit)} to {shown(line.ys[-1], found.unit)}"
        for line in found.lines
        if line.ys
    ]
    return f"{found.title}. {'; '.join(told)}"


def _legend(found: Chart) -> Markup:
    items = [
        el(
            "span",
            {"class": "key"},
            _swatch(f"l{line.tone % 6}" + (" dash" if line.dashed else "")),
            line.name,
        )
        for line in found.lines
    ]
    return el("span", {"class": "legend"}, *items)


def _swatch(kind: str) -> Markup:
    drawn = el("line", {"x1": 0, "x2": 18, "y1": 5, "y2": 5, "class": f"line {kind}"})
    return el("svg", {"width": 18, "height": 10, "aria-hidden": "true"}, drawn)


def _readout() -> Markup:
    return el("output", {"class": "read"})


def _plot(x: Scale, y: Scale, inner: Sequence[Markup], over: Markup, data: str) -> Markup:
    high = HEIGHT + _ABOVE + _BELOW
    labels = [
        el("text", {"x": _LEFT - 8, "y": _at(y, value) + 4, "text-anchor": "end"}, text)
        for value, text in y.ticks
    ]
    lines = [
        el("line", {"x1": 0, "x2": "100%", "y1": _at(y, value), "y2": _at(y, value), "class": "grid"})
        for value, _ in y.ticks
    ]
    body = el(
        "svg",
        {
            "viewBox": f"0 0 {_WIDE} {HEIGHT}",
            "preserveAspectRatio": "none",
            "width": "100%",
            "height": HEIGHT,
            "y": _ABOVE,
        },
        *inner,
    )
    area = el(
        "svg",
        {"class": "area", "width": "100%", "height": high, "data-chart": data},
        *lines,
        body,
        over,
        *_below(x),
    )
    side = el("svg", {"class": "side", "width": _LEFT, "height": high, "aria-hidden": "true"}, *labels)
    return el("div", {"class": "plot"}, side, area)


def _at(y: Scale, value: float) -> float:
    return round(_ABOVE + HEIGHT * (1 - y.place(value)), 1)


def _below(x: Scale) -> Iterator[Markup]:
    """Return the labels under the axis; those at its ends stay within the chart."""
    for value, text in x.ticks:
        place = x.place(value)
        anchor = "start" if place < 0.04 else "end" if place > 0.96 else "middle"
        yield el("text", {"x": f"{100 * place:.2f}%", "y": HEIGHT + _ABOVE + 17, "text-anchor": anchor}, text)


def _line(line: Line, x: Scale, y: Scale, filled: bool) -> Markup:
    stride = max(1, -(-len(line.xs) // _MOST))
    points = list(zip(line.xs, line.ys, strict=True))
    points = [*points[:-1:stride], points[-1]] if points else []
    pieces = list(_pieces(points, x, y))
    path = " ".join("M" + " L".join(f"{a:.1f} {b:.1f}" for a, b in piece) for piece in pieces)
    tone = f"l{line.tone % 6}" + (" dash" if line.dashed else "")
    under = Markup("")
    if filled and pieces:
        closed = " ".join(
            f"M{piece[0][0]:.1f} {HEIGHT} L"
            + " L".join(f"{a:.1f} {b:.1f}" for a, b in piece)
            + f" L{piece[-1][0]:.1f} {HEIGHT} Z"
            for piece in pieces
        )
        under = el("path", {"d": closed, "class": f"fill {tone}"})
    return joined([under, el("path", {"d": path, "class": f"line {tone}"})])


def _pieces(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> Iterator[list[tuple[float, float]]]:
    """Split a line at values that are not numbers."""
    piece: list[tuple[float, float]] = []
    for at, value in points:
        if math.isfinite(value) and math.isfinite(at):
            piece.append((_WIDE * x.place(at), HEIGHT * (1 - y.place(value))))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _limit(found: Chart, y: Scale) -> Markup:
    if found.limit is None:
        return Markup("")
    at = _at(y, found.limit)
    name = f"{shown(found.limit, found.unit)} {found.limit_name}".replace(" cores cores", " cores")
    return joined(
        [
            el("line", {"x1": 0, "x2": "100%", "y1": at, "y2": at, "class": "limit"}),
            el("text", {"x": "100%", "y": at + 13, "text-anchor": "end", "class": "limit-name"}, name),
        ]
    )


def _data(found: Chart) -> str:
    """Return what the script shows at the pointer: names, positions and formatted values. Long lines are
    thinned.
    """
    series = []
    for line in found.lines:
        stride = max(1, -(-len(line.xs) // _MOST))
        kept = range(0, len(line.xs), stride)
        series.append(
            {
                "name": line.name,
                "x": [float(f"{line.xs[at]:.5g}") for at in kept],
                "y": [shown(line.ys[at], found.unit) for at in kept],
            }
        )
    return json.dumps(
        {"begin": found.begin, "end": found.end, "axis": found.axis, "series": series}, separators=(",", ":")
    )


# ---------------------------------------------------------------- shares


def stacked(found: Stacked) -> Markup:
    """Return a chart of shares over time as stacked areas."""
    if len(found.edges) < 2:
        return Markup("")
    begin, end = found.edges[0], found.edges[-1]
    x, y = along(begin, end, "s"), Scale(0.0, 1.0, ((0.0, "0%"), (0.5, "50%"), (1.0, "100%")))
    floor = [0.0] * (len(found.edges) - 1)
    paths = []
    for layer in found.layers:
        top = [min(1.0, a + b) for a, b in zip(floor, layer.shares, strict=True)]
        paths.append(el("path", {"d": _area(found.edges, floor, top, x), "class": f"k k-{layer.key}"}))
        floor = top
    keys = [_key(layer.key, layer.name) for layer in found.layers]
    caption = el(
        "figcaption",
        None,
        el("span", {"class": "name"}, found.title),
        el("span", {"class": "legend"}, *keys),
        _readout(),
    )
    drawn = _plot(x, y, paths, joined(_marks(found, x)), _stacked_data(found))
    return el(
        "figure",
        {"class": "chart wide", "role": "img", "aria-label": f"{found.title}: shares of each moment"},
        caption,
        drawn,
    )


def _area(edges: Sequence[float], floor: Sequence[float], top: Sequence[float], x: Scale) -> str:
    places = [_WIDE * x.place(edge) for edge in edges]
    up = [
        f"{places[n + side]:.1f} {HEIGHT * (1 - value):.1f}" for n, value in enumerate(top) for side in (0, 1)
    ]
    down = [
        f"{places[n + side]:.1f} {HEIGHT * (1 - value):.1f}"
        for n, value in reversed(list(enumerate(floor)))
        for side in (1, 0)
    ]
    return "M" + " L".join([*up, *down]) + " Z"


def _marks(found: Stacked, x: Scale) -> Iterator[Markup]:
    for at, name in found.marks:
        place = x.place(at)
        where = f"{100 * place:.2f}%"
        yield el(
            "line",
            {"x1": where, "x2": where, "y1": _ABOVE, "y2": HEIGHT + _ABOVE, "class": "mark"},
            el("title", None, f"{name}, at {clock(at, 0.1)}"),
        )


def _stacked_data(found: Stacked) -> str:
    middles = [float(f"{(a + b) / 2:.5g}") for a, b in zip(found.edges, found.edges[1:], strict=False)]
    series = [
        {"name": layer.name, "x": middles, "y": [f"{value * 100:.0f}%" for value in layer.shares]}
        for layer in found.layers
    ]
    return json.dumps(
        {"begin": found.edges[0], "end": found.edges[-1], "axis": "s", "series": series},
        separators=(",", ":"),
    )


def _key(key: str, name: str) -> Markup:
    box = el(
        "svg",
        {"width": 12, "height": 12, "aria-hidden": "true"},
        el("rect", {"width": 12, "height": 12, "rx": 2, "class": f"k k-{key}"}),
    )
    return el("span", {"class": "key"}, box, name)


def parts(found: Parts) -> Markup:
    """Return one bar for the whole, and a line of text for each part."""
    drawn, at = [], 0.0
    for part in found.items:
        if part.share > 0:
            rect: Attributes = {
                "x": f"{100 * at:.3f}%",
                "width": f"{100 * part.share:.3f}%",
                "height": 26,
                "class": f"k k-{part.key}",
            }
            drawn.append(el("rect", rect, el("title", None, f"{part.name}: {part.value}")))
        at += part.share
    bar = el(
        "svg",
        {"class": "bar", "width": "100%", "height": 26, "role": "img", "aria-label": found.title},
        *drawn,
    )
    rows = [
        el(
            "li",
            None,
            _key(part.key, part.name),
            el("b", None, part.value),
            el("span", {"class": "meaning"}, part.meaning),
        )
        for part in found.items
    ]
    return el(
        "figure",
        {"class": "parts"},
        el("figcaption", None, el("span", {"class": "name"}, found.title)),
        bar,
        el("ul", None, *rows),
    )
