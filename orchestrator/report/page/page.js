"use strict";
(() => {
  const all = [...document.querySelectorAll(".area")].map((area) => {
    const figure = area.closest("figure");
    const data = JSON.parse(area.dataset.chart);
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [key, value] of Object.entries({ class: "cursor", y1: 8, y2: 140, visibility: "hidden" })) cursor.setAttribute(key, value);
    area.append(cursor);
    return { area, data, cursor, read: figure.querySelector(".read") };
  });
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] < x) low = middle; else high = middle; }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  };
  const time = (s) => s < 600 ? `${s.toFixed(1)} s` : s < 36000 ? `${Math.floor(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
  const show = (one, x) => {
    const { begin, end, axis, series } = one.data;
    const place = (100 * (x - begin) / (end - begin)).toFixed(2) + "%";
    one.cursor.setAttribute("x1", place);
    one.cursor.setAttribute("x2", place);
    one.cursor.setAttribute("visibility", "visible");
    const at = axis === "s" ? time(x) : `${axis} ${Math.round(x)}`;
    const told = series.filter((s) => s.x.length).map((s) => (series.length > 1 ? s.name + " " : "") + s.y[nearest(s.x, x)]);
    one.read.textContent = `${at}: ${told.join(" · ")}`;
  };
  const hide = (one) => { one.cursor.setAttribute("visibility", "hidden"); one.read.textContent = ""; };
  for (const one of all) {
    const group = all.filter((other) => other === one || (one.data.axis === "s" && other.data.axis === "s"));
    one.area.addEventListener("pointermove", (event) => {
      const box = one.area.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      const x = one.data.begin + share * (one.data.end - one.data.begin);
      for (const other of group) show(other, x);
    });
    one.area.addEventListener("pointerleave", () => group.forEach(hide));
  }
})();
