// Draws the charts of a report from the JSON in the page: plain SVG, one function for each chart.
// Text from the data only ever enters through textContent.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");

  // ---- small tools -------------------------------------------------------------------------

  const number = (value) => {
    if (value === null) return "unbounded";
    if (data.decimals === null) return String(Number(value.toPrecision(4)));
    const places = { minimumFractionDigits: data.decimals, maximumFractionDigits: data.decimals };
    return value.toLocaleString("en", places).replace("-", "\u2212");
  };
  const plain = (value) => {
    const size = Math.abs(value);
    if (size && (size >= 1e6 || size < 1e-4)) return value.toExponential(1).replace("e+", "e");
    return value.toLocaleString("en", { maximumSignificantDigits: 6 }).replace("-", "\u2212");
  };
  const percent = (value) => `${Number((100 * value).toFixed(1))}%`;
  const range = (count) => Array.from({ length: count }, (_, i) => i);
  const extent = (values) => [Math.min(...values), Math.max(...values)];
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

  function add(parent, name, attributes = {}, text = null) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    return parent.appendChild(node);
  }

  function scale([from, to], [start, end]) {
    const slope = (end - start) / (to - from || 1);
    const map = (value) => start + (value - from) * slope;
    map.invert = (place) => from + (place - start) / slope;
    return map;
  }

  function ticks([low, high], count) {
    const rough = (high - low || 1) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
    const first = Math.ceil(low / step - 1e-9);
    const last = Math.floor(high / step + 1e-9);
    return range(last - first + 1).map((i) => Number(((first + i) * step).toPrecision(12)));
  }

  function padded([low, high], share = 0.05) {
    const margin = (high - low) * share || Math.abs(high) * share || 1;
    return [low - margin, high + margin];
  }

  function show(lines, left, top) {
    tip.replaceChildren(...lines.map((line) => {
      const row = document.createElement("div");
      row.textContent = line;
      return row;
    }));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${clamp(left - width / 2, 6, window.innerWidth - width - 6)}px`;
    tip.style.top = `${top - height - 14 > 6 ? top - height - 14 : top + 18}px`;
  }

  const hide = () => { tip.hidden = true; };

  // A frame with axes: gives the SVG, the scales and the edges of the plot.
  function frame(host, options) {
    const { width, height, x, y } = options;
    host.querySelector("svg")?.remove();
    const svg = add(host, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    svg.setAttribute("aria-label", host.dataset.label);
    host.prepend(svg);
    const yTicks = options.yTicks ?? ticks(y, 5);
    const xTicks = options.xTicks ?? ticks(x, width < 480 ? 4 : 7);
    const yText = options.yText ?? plain;
    const xText = options.xText ?? plain;
    const widest = Math.max(0, ...yTicks.map((value) => yText(value).length));
    const left = 14 + 7.2 * widest;
    const [right, top, bottom] = [width - 12, 22, height - (xTicks.length ? 38 : 24)];
    const toX = scale(x, [left, right]);
    const toY = scale(y, [bottom, top]);
    for (const value of yTicks) {
      add(svg, "line", { class: "grid", x1: left, x2: right, y1: toY(value), y2: toY(value) });
      const place = { x: left - 8, y: toY(value) + 4, "text-anchor": "end" };
      add(svg, "text", place, yText(value));
    }
    for (const value of xTicks) {
      add(svg, "text", { x: toX(value), y: bottom + 17, "text-anchor": "middle" }, xText(value));
    }
    add(svg, "line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
    const middle = { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" };
    add(svg, "text", middle, options.xLabel);
    add(svg, "text", { x: 0, y: 11 }, options.yLabel);
    const id = `clip-${host.dataset.chart}`;
    const clip = add(svg, "clipPath", { id });
    add(clip, "rect", { x: left, y: top - 4, width: right - left, height: bottom - top + 5 });
    const plot = add(svg, "g", { "clip-path": `url(#${id})` });
    return { svg, plot, toX, toY, left, right, top, bottom, width };
  }

  const polyline = (xs, ys, toX, toY) =>
    xs.map((value, i) => `${i ? "L" : "M"}${toX(value).toFixed(1)} ${toY(ys[i]).toFixed(1)}`).join("");

  const diamond = (x, y, size) =>
    `M${(x - size).toFixed(1)} ${y.toFixed(1)}l${size} ${-size} ${size} ${size} ${-size} ${size}z`;

  // Calls `at` with the pointer in the SVG's own coordinates; `at` gives lines for the tip.
  function hover(area, at) {
    const { svg, width } = area;
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const factor = width / box.width;
      const lines = at((event.clientX - box.left) * factor, (event.clientY - box.top) * factor);
      if (lines) show(lines, event.clientX, event.clientY);
      else hide();
    });
    svg.addEventListener("pointerleave", hide);
  }

  const nearest = (values, wanted) => values.reduce(
    (best, value, i) => (Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? i : best), 0);

  // ---- rows and their intervals ------------------------------------------------------------

  const view = { from: 0, to: 0, level: 0, row: -1 };

  function rowLines(i) {
    const { names, target, point, levels } = data.intervals;
    const { lower, upper, coverage } = levels[view.level];
    return [
      `Row ${names[i]}`,
      `observed ${number(target[i])}`,
      `predicted ${number(point[i])}`,
      `${percent(coverage)} interval: ${lower[i] === null ? "unbounded"
        : `${number(lower[i])} to ${number(upper[i])}`}`,
      isInside(i) ? "inside" : "outside",
    ];
  }

  function isInside(i) {
    const { lower, upper } = data.intervals.levels[view.level];
    const value = data.intervals.target[i];
    return (lower[i] === null || lower[i] <= value) && (upper[i] === null || value <= upper[i]);
  }

  function intervals(host, width) {
    const { target, point, levels } = data.intervals;
    const { lower, upper } = levels[view.level];
    const shown = range(view.to - view.from).map((i) => i + view.from);
    const seen = shown.flatMap((i) => [target[i], point[i], lower[i], upper[i]]);
    const area = frame(host, {
      width, height: width < 560 ? 320 : 400, xTicks: [], xLabel: "rows in the order of their prediction",
      x: [view.from - 0.5, view.to - 0.5], y: padded(extent(seen.filter((value) => value !== null))),
      yLabel: host.dataset.unit,
    });
    const { svg, plot, toX, toY } = area;
    const gap = toX(1) - toX(0);
    const spans = shown.map((i) => {
      const [low, high] = [lower[i] === null ? area.bottom : toY(lower[i]), upper[i] === null ? area.top : toY(upper[i])];
      return `M${toX(i).toFixed(1)} ${low.toFixed(1)}V${high.toFixed(1)}`;
    });
    add(plot, "path", { class: "span", d: spans.join(""), "stroke-width": clamp(0.7 * gap, 1, 9) });
    add(plot, "path", { class: "line", d: polyline(shown, shown.map((i) => point[i]), toX, toY) });
    const inside = shown.filter(isInside).map((i) => `M${toX(i).toFixed(1)} ${toY(target[i]).toFixed(1)}h0`);
    add(plot, "path", { class: "in", d: inside.join(""), "stroke-width": clamp(gap, 1.8, 5) });
    const outside = shown.filter((i) => !isInside(i));
    const size = clamp(1.2 * gap, 2.4, 6);
    add(plot, "path", { class: "out", d: outside.map((i) => diamond(toX(i), toY(target[i]), size)).join("") });
    const mark = add(plot, "circle", { class: "pick", r: 7, visibility: "hidden" });
    const place = (i) => {
      mark.setAttribute("cx", toX(i));
      mark.setAttribute("cy", toY(target[i]));
      mark.setAttribute("visibility", "visible");
    };
    hover(area, (x) => {
      const i = clamp(Math.round(toX.invert(x)), view.from, view.to - 1);
      place(i);
      view.row = i;
      return rowLines(i);
    });
    svg.addEventListener("pointerleave", () => mark.setAttribute("visibility", "hidden"));
    dragToZoom(host, area);
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) {
        view.row = clamp((view.row < 0 ? view.from : view.row) + step, view.from, view.to - 1);
        place(view.row);
        const box = svg.getBoundingClientRect();
        const factor = box.width / width;
        show(rowLines(view.row), box.left + toX(view.row) * factor, box.top + toY(target[view.row]) * factor);
      } else if (event.key === "+" || event.key === "=") zoom(host, 0.5);
      else if (event.key === "-") zoom(host, 2);
      else if (event.key === "0" || event.key === "Escape") zoom(host, Infinity);
      else return;
      event.preventDefault();
    });
    describe(host);
  }

  function dragToZoom(host, { svg, plot, toX, left, right, top, bottom, width }) {
    let start = null;
    const box = add(plot, "rect", { class: "select", y: top, height: bottom - top, width: 0 });
    const place = (event) => {
      const outer = svg.getBoundingClientRect();
      return clamp((event.clientX - outer.left) * width / outer.width, left, right);
    };
    svg.style.touchAction = "pan-y";
    svg.addEventListener("pointerdown", (event) => {
      start = place(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const end = place(event);
      box.setAttribute("x", Math.min(start, end));
      box.setAttribute("width", Math.abs(end - start));
    });
    svg.addEventListener("pointercancel", () => { start = null; box.setAttribute("width", 0); });
    svg.addEventListener("pointerup", (event) => {
      const ends = [start, place(event)].sort((a, b) => a - b);
      if (start !== null && ends[1] - ends[0] > 8) {
        move(host, Math.round(toX.invert(ends[0])), Math.round(toX.invert(ends[1])) + 1);
      }
      start = null;
      box.setAttribute("width", 0);
    });
    svg.addEventListener("dblclick", () => zoom(host, Infinity));
  }

  function move(host, from, to) {
    const total = data.intervals.target.length;
    const size = clamp(to - from, Math.min(5, total), total);
    view.from = clamp(from, 0, total - size);
    view.to = view.from + size;
    hide();
    redraw(host);
  }

  function zoom(host, factor) {
    const total = data.intervals.target.length;
    const size = Math.min(total, Math.round((view.to - view.from) * factor));
    const center = (view.from + view.to) / 2;
    move(host, Math.round(center - size / 2), Math.round(center + size / 2));
  }

  function describe(host) {
    const total = data.intervals.target.length;
    const { coverage, rate, band, width } = data.intervals.levels[view.level];
    const part = view.to - view.from < total
      ? ` Shown: ${view.from + 1} to ${view.to} of ${total}.` : "";
    host.closest("section").querySelector(".status").textContent =
      `At ${percent(coverage)}: ${percent(rate)} of all rows inside (by chance ${percent(band[0])} to ` +
      `${percent(band[1])}), typical width ${number(width)}.${part}`;
    for (const button of document.querySelectorAll("[data-zoom]")) {
      const whole = view.to - view.from >= total;
      const smallest = view.to - view.from <= Math.min(5, total);
      button.disabled = button.dataset.zoom === "in" ? smallest : whole
        || (button.dataset.zoom === "left" && view.from === 0)
        || (button.dataset.zoom === "right" && view.to === total);
    }
  }

  function toolbar() {
    const host = document.querySelector('[data-chart="intervals"]');
    if (!host) return;
    view.to = data.intervals.target.length;
    view.level = data.intervals.levels.findIndex((level) => level.coverage === data.coverage);
    const page = () => Math.max(1, Math.round((view.to - view.from) * 0.5));
    const actions = {
      in: () => zoom(host, 0.5),
      out: () => zoom(host, 2),
      all: () => zoom(host, Infinity),
      left: () => move(host, view.from - page(), view.to - page()),
      right: () => move(host, view.from + page(), view.to + page()),
    };
    for (const button of document.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", actions[button.dataset.zoom]);
    }
    for (const input of document.querySelectorAll('input[name="level"]')) {
      input.addEventListener("change", () => {
        view.level = Number(input.value);
        redraw(host);
      });
    }
  }

  // ---- calibration -------------------------------------------------------------------------

  // The hero's number line: what was promised, what chance allows, what was seen.
  function strip(host, width) {
    const { rate, band } = data.intervals.levels.find((level) => level.coverage === data.coverage);
    const [low, high] = padded([Math.min(rate, band[0]), Math.max(rate, band[1])], 0.35);
    const height = 74;
    host.querySelector("svg")?.remove();
    const svg = add(host, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    svg.setAttribute("aria-label", host.dataset.label);
    const x = scale([Math.max(0, low), Math.min(1, high)], [28, width - 28]);
    add(svg, "line", { class: "axis", x1: 28, x2: width - 28, y1: 42, y2: 42 });
    add(svg, "rect", { class: "band", x: x(band[0]), width: Math.max(2, x(band[1]) - x(band[0])), y: 33, height: 18, rx: 4 });
    add(svg, "line", { class: "cross", x1: x(data.coverage), x2: x(data.coverage), y1: 29, y2: 55 });
    const within = rate >= band[0] && rate <= band[1];
    if (within) add(svg, "circle", { class: "dot", cx: x(rate), cy: 42, r: 7 });
    else add(svg, "path", { class: "out", d: diamond(x(rate), 42, 9) });
    const label = (value, y, text, strong) => add(svg, "text", {
      x: clamp(x(value), 84, width - 84), y, "text-anchor": "middle", class: strong ? "strong" : "",
    }, text);
    label(rate, 20, `${percent(rate)} inside`, true);
    const [left, right] = [x(band[0]), x(band[1])];
    if (right - left > 90) {
      add(svg, "text", { x: left, y: 68, "text-anchor": "middle" }, percent(band[0]));
      add(svg, "text", { x: right, y: 68, "text-anchor": "middle" }, percent(band[1]));
      const middle = x(data.coverage);
      if (middle - left > 84 && right - middle > 84) label(data.coverage, 68, `promised ${percent(data.coverage)}`);
    } else label((band[0] + band[1]) / 2, 68, `by chance ${percent(band[0])} to ${percent(band[1])}`);
  }

  function calibration(host, width) {
    const { nominal, observed, low, high } = data.calibration;
    const area = frame(host, {
      width, height: Math.min(width, 380), x: [0, 1], y: [0, 1], xText: percent, yText: percent,
      xTicks: [0, 0.25, 0.5, 0.75, 1], yTicks: [0, 0.25, 0.5, 0.75, 1],
      xLabel: "coverage promised", yLabel: "share of rows inside",
    });
    const { plot, toX, toY } = area;
    const back = [...nominal].reverse();
    const ring = polyline([...nominal, ...back], [...high, ...[...low].reverse()], toX, toY);
    add(plot, "path", { class: "band", d: `${ring}Z` });
    add(plot, "path", { class: "ideal", d: polyline([0, 1], [0, 1], toX, toY) });
    add(plot, "path", { class: "line", d: polyline([0, ...nominal, 1], [0, ...observed, 1], toX, toY) });
    const mark = add(plot, "circle", { class: "dot", r: 5, visibility: "hidden" });
    hover(area, (x) => {
      const i = nearest(nominal, toX.invert(x));
      mark.setAttribute("cx", toX(nominal[i]));
      mark.setAttribute("cy", toY(observed[i]));
      mark.setAttribute("visibility", "visible");
      return [`${percent(nominal[i])} promised`, `${percent(observed[i])} of the rows inside`,
        `by chance ${percent(low[i])} to ${percent(high[i])}`];
    });
    area.svg.addEventListener("pointerleave", () => mark.setAttribute("visibility", "hidden"));
  }

  function pit(host, width) {
    const { heights, counts, band } = data.pit;
    const bins = heights.length;
    const area = frame(host, {
      width, height: Math.min(width, 380), x: [0, 1], y: [0, Math.max(2, 1.08 * Math.max(...heights))],
      xTicks: [0, 0.25, 0.5, 0.75, 1], xText: percent,
      xLabel: "place of the target in its predicted distribution", yLabel: "rows, against level bars",
    });
    const { plot, toX, toY, left, right, bottom } = area;
    const [low, high] = [toY(band[0]), toY(band[1])];
    add(plot, "rect", { class: "band", x: left, width: right - left, y: high, height: low - high });
    heights.forEach((value, i) => add(plot, "rect", {
      class: "bar", x: toX(i / bins) + 1, width: Math.max(1, toX(1 / bins) - toX(0) - 2),
      y: toY(value), height: Math.max(0, bottom - toY(value)),
    }));
    for (const y of [low, high]) add(plot, "line", { class: "edge", x1: left, x2: right, y1: y, y2: y });
    add(plot, "line", { class: "ideal", x1: left, x2: right, y1: toY(1), y2: toY(1) });
    hover(area, (x) => {
      const i = clamp(Math.floor(toX.invert(x) * bins), 0, bins - 1);
      const total = counts.reduce((sum, value) => sum + value, 0);
      return [`${percent(i / bins)} to ${percent((i + 1) / bins)}`,
        `${counts[i]} of ${total} rows; ${plain(Number((total / bins).toFixed(1)))} expected`];
    });
  }

  // ---- groups ------------------------------------------------------------------------------

  // Cards share a scale, so that they compare; a card with a group far below has its own.
  const lowestRate = (rows) =>
    Math.max(0, Math.floor(10 * Math.min(...rows.flatMap((one) => [one.rate, one.low])) - 0.2) / 10);
  const usualLowest = data.groups.map(lowestRate).sort((a, b) => a - b)[Math.floor(data.groups.length / 4)];

  function group(host, width) {
    const rows = data.groups[Number(host.dataset.part)];
    const lowest = Math.min(lowestRate(rows), usualLowest);
    const line = 26;
    const height = 26 + line * rows.length + 18;
    host.querySelector("svg")?.remove();
    const svg = add(host, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    svg.setAttribute("aria-label", host.dataset.label);
    const longest = Math.max(...rows.map((one) => one.label.length));
    const name = clamp(6.8 * longest + 6, 80, 0.44 * width);
    const value = Math.max(...rows.map((one) => number(one.width).length)) * 7.2 + 4;
    const middle = name + (width - name) * 0.54;
    const toX = scale([lowest, 1], [name + 12, middle - 8]);
    const widest = Math.max(...rows.map((one) => one.width ?? 0)) || 1;
    const toWidth = scale([0, widest], [0, Math.max(12, width - middle - 12 - value)]);
    add(svg, "text", { x: name + 12, y: 10 }, "rows inside");
    add(svg, "text", { x: middle + 12, y: 10 }, "mean width");
    const promised = toX(data.coverage);
    rows.forEach((one, i) => {
      const y = 24 + line * i + line / 2;
      const row = add(svg, "g");
      add(row, "rect", { class: "zebra", x: 0, y: y - line / 2, width, height: line, rx: 4 });
      const room = Math.floor(name / 6.6);
      const text = one.label.length > room ? `${one.label.slice(0, room - 1)}\u2026` : one.label;
      add(row, "text", { x: 0, y: y + 4, class: "strong" }, text);
      add(row, "rect", { class: "band", x: toX(one.low), width: Math.max(2, toX(one.high) - toX(one.low)), y: y - 7, height: 14, rx: 3 });
      if (one.verdict === "short") add(row, "path", { class: "out", d: diamond(toX(one.rate), y, 7) });
      else add(row, "circle", { class: "dot", cx: toX(one.rate), cy: y, r: 4.5 });
      add(row, "rect", { class: "bar", x: middle + 12, width: toWidth(one.width ?? widest), y: y - 5, height: 10, rx: 2 });
      add(row, "text", { x: middle + 18 + toWidth(one.width ?? widest), y: y + 4 }, number(one.width));
      const verdict = { short: "falls short beyond chance", wide: "more than promised, beyond chance" }[one.verdict];
      const lines = [one.label, `${percent(one.rate)} of ${one.rows.toLocaleString("en")} rows inside`,
        `by chance ${percent(one.low)} to ${percent(one.high)}`, `mean width ${number(one.width)}`];
      if (verdict) lines.push(verdict);
      row.addEventListener("pointermove", (event) => show(lines, event.clientX, event.clientY));
      row.addEventListener("pointerleave", hide);
    });
    add(svg, "line", { class: "ideal", x1: promised, x2: promised, y1: 16, y2: height - 16 });
    add(svg, "text", { x: promised, y: height - 3, "text-anchor": "middle" }, percent(data.coverage));
    if (promised - toX(lowest) > 60) add(svg, "text", { x: toX(lowest), y: height - 3 }, percent(lowest));
  }

  // ---- noise and doubt, training -----------------------------------------------------------

  function uncertainty(host, width) {
    const { aleatoric, epistemic } = data.uncertainty;
    const area = frame(host, {
      width, height: width < 560 ? 320 : 380, x: [0, 1.05 * Math.max(...aleatoric) || 1],
      y: [0, 1.08 * Math.max(...epistemic) || 1],
      xLabel: "noise (aleatoric standard deviation)", yLabel: "doubt (epistemic standard deviation)",
    });
    const { plot, toX, toY } = area;
    const end = Math.max(...aleatoric, ...epistemic) * 2;
    add(plot, "path", { class: "ideal", d: polyline([0, end], [0, end], toX, toY) });
    const level = data.intervals.levels.findIndex((one) => one.coverage === data.coverage);
    const { lower, upper } = data.intervals.levels[level];
    const holds = (i) => (lower[i] === null || lower[i] <= data.intervals.target[i])
      && (upper[i] === null || data.intervals.target[i] <= upper[i]);
    const all = range(aleatoric.length);
    const dots = all.filter(holds).map((i) => `M${toX(aleatoric[i]).toFixed(1)} ${toY(epistemic[i]).toFixed(1)}h0`);
    add(plot, "path", { class: "in soft", d: dots.join(""), "stroke-width": all.length > 400 ? 3.5 : 5 });
    const missed = all.filter((i) => !holds(i)).map((i) => diamond(toX(aleatoric[i]), toY(epistemic[i]), all.length > 400 ? 3.5 : 5));
    add(plot, "path", { class: "out", d: missed.join("") });
    const mark = add(plot, "circle", { class: "pick", r: 7, visibility: "hidden" });
    hover(area, (x, y) => {
      const away = all.map((i) => Math.hypot(toX(aleatoric[i]) - x, toY(epistemic[i]) - y));
      const i = nearest(away, 0);
      mark.setAttribute("visibility", away[i] < 30 ? "visible" : "hidden");
      if (away[i] >= 30) return null;
      mark.setAttribute("cx", toX(aleatoric[i]));
      mark.setAttribute("cy", toY(epistemic[i]));
      return [`Row ${data.intervals.names[i]}`, `noise ${number(aleatoric[i])}`, `doubt ${number(epistemic[i])}`,
        `predicted ${number(data.intervals.point[i])}`, holds(i) ? "inside" : "outside"];
    });
  }

  function history(host, width) {
    const curves = data.history.flatMap((one) => [one.train, one.valid]).filter((curve) => curve[0].length);
    // What validation shows after a network's best epoch is thrown away, and may leave the chart.
    const judged = data.history.map((one) => one.valid).filter((curve) => curve[0].length);
    const best = judged.map(([epochs, losses]) => {
      const i = losses.indexOf(Math.min(...losses));
      return [epochs[i], losses[i]];
    });
    const values = data.history.flatMap((one) => one.train[1]).sort((a, b) => a - b);
    const ends = [values[0], values[Math.floor(0.98 * (values.length - 1))], ...best.map(([, loss]) => loss)];
    const last = Math.max(...curves.flatMap((curve) => curve[0]));
    const area = frame(host, {
      width, height: width < 560 ? 280 : 320, x: [0, last], xLabel: "epoch", yLabel: "loss",
      y: padded(extent(ends), 0.08),
    });
    const { plot, toX, toY } = area;
    const kinds = [["train", "", "training"], ["valid", " other", "validation"]];
    const middles = kinds.map(([part]) => median(data.history.map((one) => one[part])));
    kinds.forEach(([part, kind], k) => {
      for (const one of data.history) {
        if (one[part][0].length) add(plot, "path", { class: `faint${kind}`, d: polyline(...one[part], toX, toY) });
      }
      if (middles[k][0].length) add(plot, "path", { class: `line${kind}`, d: polyline(...middles[k], toX, toY) });
    });
    for (const [epoch, loss] of best) add(plot, "circle", { class: "best", cx: toX(epoch), cy: toY(loss), r: 4 });
    hover(area, (x) => {
      const epoch = clamp(Math.round(toX.invert(x)), 1, last);
      const lines = [`Epoch ${epoch}`];
      kinds.forEach(([, , name], k) => {
        const [epochs, values] = middles[k];
        if (epochs.length) lines.push(`${name} loss ${values[nearest(epochs, epoch)].toPrecision(4)} (median)`);
      });
      return lines;
    });
  }

  // The middle of several curves, as long as half of the networks are still training.
  function median(curves) {
    const used = curves.filter((curve) => curve[0].length);
    const ends = used.map((curve) => curve[0].at(-1)).sort((a, b) => a - b);
    const grid = (used[0]?.[0] ?? []).length ? used.reduce((a, b) => (a[0].length > b[0].length ? a : b))[0] : [];
    const epochs = grid.filter((epoch) => epoch <= ends[Math.floor(ends.length / 2)]);
    return [epochs, epochs.map((epoch) => {
      const at = used.filter((curve) => curve[0].at(-1) >= epoch)
        .map((curve) => curve[1][nearest(curve[0], epoch)]).sort((a, b) => a - b);
      return at[Math.floor(at.length / 2)];
    })];
  }

  // ---- tables ------------------------------------------------------------------------------

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      button?.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => Number(row.cells[column].dataset.value);
        const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? key(b) - key(a) : key(a) - key(b)));
        table.tBodies[0].append(...rows);
      });
    });
  }

  // ---- all together ------------------------------------------------------------------------

  const charts = { strip, intervals, calibration, pit, group, uncertainty, history };

  function redraw(host) {
    const width = Math.round(host.clientWidth);
    if (width > 0) charts[host.dataset.chart](host, width);
  }

  toolbar();
  document.querySelectorAll("table.sortable").forEach(sortable);
  const widths = new WeakMap();
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (widths.get(target) === target.clientWidth) continue;
      widths.set(target, target.clientWidth);
      redraw(target);
    }
  });
  document.querySelectorAll("[data-chart]").forEach((host) => observer.observe(host));
  window.addEventListener("scroll", hide, { passive: true });
  // Paper has no summary to click on: open everything while printing.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((one) => { one.open = true; });
    document.querySelectorAll("[data-chart]:not(:has(svg))").forEach(redraw);
  });
  window.addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));
})();
