// Draws the charts of a report from the JSON in the page, with one function per chart.

import {
  add, canvas, clamp, curve, diamond, dots, extent, frame, hideTip, hintAtScrolling, hover, marker,
  nearest, padded, percent, plain, pointer, range, scale, showTip,
} from "./charts.js";

const data = JSON.parse(document.getElementById("data").textContent);

const number = (value) => {
  if (value === null) return "unbounded";
  if (data.decimals === null) return String(Number(value.toPrecision(4)));
  const places = { minimumFractionDigits: data.decimals, maximumFractionDigits: data.decimals };
  return value.toLocaleString("en", places).replace("-", "−");
};

// Rows inside their interval; a target that equals an end of its interval may count in part.
const inside = data.ties ? "inside, corrected for ties" : "inside";

// ---- rows and their intervals --------------------------------------------------------------

const { names, target, point, levels } = data.intervals;
const ownLevel = levels.findIndex((level) => level.coverage === data.coverage);
const total = target.length;
const view = { from: 0, to: total, level: ownLevel, row: -1 };

function isInside(i, level) {
  const { lower, upper } = levels[level];
  return (lower[i] === null || lower[i] <= target[i]) && (upper[i] === null || target[i] <= upper[i]);
}

function rowLines(i) {
  const { lower, upper, coverage } = levels[view.level];
  const bounds = lower[i] === null ? "unbounded" : `${number(lower[i])} to ${number(upper[i])}`;
  return [`Row ${names[i]}`, `observed ${number(target[i])}`, `predicted ${number(point[i])}`,
    `${percent(coverage)} interval: ${bounds}`, isInside(i, view.level) ? "inside" : "outside"];
}

function intervals(host, width, label) {
  const { lower, upper } = levels[view.level];
  const shown = range(view.to - view.from).map((i) => i + view.from);
  const seen = shown.flatMap((i) => [target[i], point[i], lower[i], upper[i]]);
  const area = frame(host, {
    width, height: width < 560 ? 320 : 400, label, xTicks: [], yLabel: host.dataset.unit,
    xLabel: "rows, sorted by prediction",
    x: [view.from - 0.5, view.to - 0.5], y: padded(extent(seen.filter((value) => value !== null))),
  });
  const { svg, plot, toX, toY } = area;
  const gap = toX(1) - toX(0);
  const spans = shown.map((i) => {
    const low = lower[i] === null ? area.bottom : toY(lower[i]);
    const high = upper[i] === null ? area.top : toY(upper[i]);
    return `M${toX(i).toFixed(1)} ${low.toFixed(1)}V${high.toFixed(1)}`;
  });
  add(plot, "path", { class: "span", d: spans.join(""), "stroke-width": clamp(0.7 * gap, 1, 9) });
  add(plot, "path", { class: "line", d: curve(shown, shown.map((i) => point[i]), area) });
  const place = (i) => [toX(i), toY(target[i])];
  const within = shown.filter((i) => isInside(i, view.level));
  add(plot, "path", { class: "in", d: dots(within.map(place)), "stroke-width": clamp(gap, 1.8, 5) });
  const outside = shown.filter((i) => !isInside(i, view.level));
  const size = clamp(1.2 * gap, 2.4, 6);
  add(plot, "path", { class: "out", d: outside.map((i) => diamond(...place(i), size)).join("") });
  const mark = marker(area, { class: "pick", r: 7 });
  hover(area, (x) => {
    view.row = clamp(Math.round(toX.invert(x)), view.from, view.to - 1);
    mark(...place(view.row));
    return rowLines(view.row);
  });
  dragToZoom(host, area);
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2, 0: Infinity, Escape: Infinity }[event.key];
    if (!step && !factor) return;
    event.preventDefault();
    if (factor) {
      zoom(host, factor);
      return;
    }
    view.row = clamp((view.row < 0 ? view.from : view.row) + step, view.from, view.to - 1);
    mark(...place(view.row));
    const box = svg.getBoundingClientRect();
    const [x, y] = place(view.row).map((one) => one * box.width / width);
    showTip(rowLines(view.row), box.left + x, box.top + y);
  });
  describe(host);
}

function dragToZoom(host, area) {
  const { svg, plot, toX, left, right, top, bottom } = area;
  let start = null;
  const box = add(plot, "rect", { class: "select", y: top, height: bottom - top, width: 0 });
  const place = (event) => clamp(pointer(area, event)[0], left, right);
  const stop = () => { start = null; box.setAttribute("width", 0); };
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
  svg.addEventListener("pointercancel", stop);
  svg.addEventListener("pointerup", (event) => {
    const ends = [start ?? place(event), place(event)].sort((a, b) => a - b);
    if (ends[1] - ends[0] > 8) {
      move(host, Math.round(toX.invert(ends[0])), Math.round(toX.invert(ends[1])) + 1);
    }
    stop();
  });
  svg.addEventListener("dblclick", () => zoom(host, Infinity));
}

function move(host, from, to) {
  const size = clamp(to - from, Math.min(5, total), total);
  view.from = clamp(from, 0, total - size);
  view.to = view.from + size;
  hideTip();
  redraw(host);
}

function zoom(host, factor) {
  const size = Math.min(total, Math.round((view.to - view.from) * factor));
  const center = (view.from + view.to) / 2;
  move(host, Math.round(center - size / 2), Math.round(center + size / 2));
}

function describe(host) {
  const { coverage, rate, band, width } = levels[view.level];
  const seen = view.to - view.from;
  const part = seen < total ? ` Shown: ${view.from + 1} to ${view.to} of ${total}.` : "";
  const text = width === null ? "the intervals are unbounded, for lack of calibration rows."
    : `${percent(rate)} of all rows ${inside} (by chance ${percent(band[0])} to ${percent(band[1])}), ` +
      `typical width ${number(width)}.`;
  host.closest("section").querySelector(".status").textContent = `At ${percent(coverage)}: ${text}${part}`;
  const off = {
    in: seen <= Math.min(5, total), out: seen >= total, all: seen >= total,
    left: view.from === 0, right: view.to === total,
  };
  for (const button of document.querySelectorAll("[data-zoom]")) button.disabled = off[button.dataset.zoom];
}

function toolbar() {
  const host = document.querySelector('[data-chart="intervals"]');
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

// ---- calibration ---------------------------------------------------------------------------

// A number line with the nominal coverage, its range by chance, and the observed coverage.
function strip(host, width, label) {
  const { rate, band } = levels[ownLevel];
  const svg = canvas(host, width, 74, label);
  const [low, high] = padded([Math.min(rate, band[0]), Math.max(rate, band[1])], 0.35);
  const x = scale([Math.max(0, low), Math.min(1, high)], [28, width - 28]);
  const [left, right, middle] = [...band, data.coverage].map(x);
  add(svg, "line", { class: "axis", x1: 28, x2: width - 28, y1: 42, y2: 42 });
  add(svg, "rect", { class: "band", x: left, width: Math.max(2, right - left), y: 33, height: 18, rx: 4 });
  add(svg, "line", { class: "axis", x1: middle, x2: middle, y1: 29, y2: 55 });
  const within = rate >= band[0] && rate <= band[1];
  if (within) add(svg, "circle", { class: "dot", cx: x(rate), cy: 42, r: 7 });
  else add(svg, "path", { class: "out", d: diamond(x(rate), 42, 9) });
  const write = (at, y, text, kind = "") => add(svg, "text", {
    x: clamp(at, 84, width - 84), y, "text-anchor": "middle", class: kind,
  }, text);
  write(x(rate), 20, `${percent(rate)} ${inside}`, "strong");
  if (right - left > 90) {
    add(svg, "text", { x: left, y: 68, "text-anchor": "middle" }, percent(band[0]));
    add(svg, "text", { x: right, y: 68, "text-anchor": "middle" }, percent(band[1]));
    if (middle - left > 84 && right - middle > 84) write(middle, 68, `nominal ${percent(data.coverage)}`);
  } else write((left + right) / 2, 68, `by chance ${percent(band[0])} to ${percent(band[1])}`);
}

const QUARTERS = [0, 0.25, 0.5, 0.75, 1];

function calibration(host, width, label) {
  const { nominal, observed, low, high } = data.calibration;
  const area = frame(host, {
    width, height: Math.min(width, 380), label, x: [0, 1], y: [0, 1], xText: percent, yText: percent,
    xTicks: QUARTERS, yTicks: QUARTERS, xLabel: "nominal coverage", yLabel: "observed coverage",
  });
  const { plot, toX, toY } = area;
  const ring = curve([...nominal, ...nominal.toReversed()], [...high, ...low.toReversed()], area);
  add(plot, "path", { class: "band", d: `${ring}Z` });
  add(plot, "path", { class: "ideal", d: curve([0, 1], [0, 1], area) });
  add(plot, "path", { class: "line", d: curve([0, ...nominal, 1], [0, ...observed, 1], area) });
  const mark = marker(area, { class: "dot", r: 5 });
  hover(area, (x) => {
    const i = nearest(nominal, toX.invert(x));
    mark(toX(nominal[i]), toY(observed[i]));
    return [`${percent(nominal[i])} nominal`, `${percent(observed[i])} of the rows ${inside}`,
      `by chance ${percent(low[i])} to ${percent(high[i])}`];
  });
}

function pit(host, width, label) {
  const { heights, counts, band } = data.pit;
  const bins = heights.length;
  const area = frame(host, {
    width, height: Math.min(width, 380), label, x: [0, 1], xTicks: QUARTERS, xText: percent,
    y: [0, Math.max(2, 1.08 * Math.max(...heights))],
    xLabel: "position of the target in its predicted distribution", yLabel: "rows, relative to flat",
  });
  const { plot, toX, toY, left, right, bottom } = area;
  const [low, high] = band.map(toY);
  const across = (kind, y) => add(plot, "line", { class: kind, x1: left, x2: right, y1: y, y2: y });
  add(plot, "rect", { class: "band", x: left, width: right - left, y: high, height: low - high });
  heights.forEach((value, i) => add(plot, "rect", {
    class: "bar", x: toX(i / bins) + 1, width: Math.max(1, toX(1 / bins) - toX(0) - 2),
    y: toY(value), height: Math.max(0, bottom - toY(value)),
  }));
  across("edge", low);
  across("edge", high);
  across("ideal", toY(1));
  const rows = counts.reduce((sum, value) => sum + value, 0);
  hover(area, (x) => {
    const i = clamp(Math.floor(toX.invert(x) * bins), 0, bins - 1);
    return [`${percent(i / bins)} to ${percent((i + 1) / bins)}`,
      `${counts[i]} of ${rows} rows; ${plain(Number((rows / bins).toFixed(1)))} expected`];
  });
}

// ---- groups --------------------------------------------------------------------------------

// Cards share a scale, so that they can be compared; a card with a group far below has its own.
const lowestRate = (rows) =>
  Math.max(0, Math.floor(10 * Math.min(...rows.flatMap((one) => [one.rate, one.low])) - 0.2) / 10);
const usualLowest = data.groups.map(lowestRate).sort((a, b) => a - b)[Math.floor(data.groups.length / 4)];
const VERDICTS = { short: "falls short, beyond chance", wide: "more than promised, beyond chance" };

function group(host, width, label) {
  const rows = data.groups[Number(host.dataset.part)];
  const lowest = Math.min(lowestRate(rows), usualLowest);
  const step = 26;
  const height = 26 + step * rows.length + 18;
  const svg = canvas(host, width, height, label);
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
    const y = 24 + step * i + step / 2;
    const row = add(svg, "g");
    const maxLength = Math.floor(name / 6.6);
    const text = one.label.length > maxLength ? `${one.label.slice(0, maxLength - 1)}…` : one.label;
    const [low, high, rate, long] = [...[one.low, one.high, one.rate].map(toX), toWidth(one.width ?? widest)];
    add(row, "rect", { class: "zebra", x: 0, y: y - step / 2, width, height: step, rx: 4 });
    add(row, "text", { x: 0, y: y + 4, class: "strong" }, text);
    add(row, "rect", { class: "band", x: low, width: Math.max(2, high - low), y: y - 7, height: 14, rx: 3 });
    if (one.verdict === "short") add(row, "path", { class: "out", d: diamond(rate, y, 7) });
    else add(row, "circle", { class: "dot", cx: rate, cy: y, r: 4.5 });
    add(row, "rect", { class: "bar", x: middle + 12, width: long, y: y - 5, height: 10, rx: 2 });
    add(row, "text", { x: middle + 18 + long, y: y + 4 }, number(one.width));
    const lines = [one.label, `${percent(one.rate)} of ${one.rows.toLocaleString("en")} rows ${inside}`,
      `by chance ${percent(one.low)} to ${percent(one.high)}`, `mean width ${number(one.width)}`];
    if (one.verdict) lines.push(VERDICTS[one.verdict]);
    row.addEventListener("pointermove", (event) => showTip(lines, event.clientX, event.clientY));
    row.addEventListener("pointerleave", hideTip);
  });
  add(svg, "line", { class: "ideal", x1: promised, x2: promised, y1: 16, y2: height - 16 });
  add(svg, "text", { x: promised, y: height - 3, "text-anchor": "middle" }, percent(data.coverage));
  if (promised - toX(lowest) > 60) add(svg, "text", { x: toX(lowest), y: height - 3 }, percent(lowest));
}

// ---- what drives predictions and widths ----------------------------------------------------

function drivers(host, width, label) {
  const { names: inputs, values } = data.drivers.bars[host.dataset.measure];
  const step = 26;
  const svg = canvas(host, width, step * inputs.length + 4, label);
  const longest = Math.max(...inputs.map((one) => one.length));
  const name = clamp(7 * longest + 8, 60, 0.44 * width);
  const maxLength = Math.floor(name / 6.8);
  const value = Math.max(...values.map((one) => number(one).length)) * 7.6 + 10;
  const toWidth = scale([0, Math.max(...values)], [1, Math.max(12, width - name - value)]);
  inputs.forEach((input, i) => {
    const y = step * i + step / 2;
    const text = input.length > maxLength ? `${input.slice(0, maxLength - 1)}…` : input;
    const row = add(svg, "g");
    add(row, "rect", { class: "zebra", x: 0, y: y - step / 2, width, height: step, rx: 4 });
    add(row, "text", { x: 0, y: y + 4, class: "strong" }, text);
    add(row, "rect", { class: "bar", x: name, width: toWidth(values[i]), y: y - 5, height: 10, rx: 2 });
    add(row, "text", { x: name + toWidth(values[i]) + 6, y: y + 4 }, number(values[i]));
    row.addEventListener("pointermove", (event) => showTip([input, number(values[i])], event.clientX, event.clientY));
    row.addEventListener("pointerleave", hideTip);
  });
}

const curveExtent = data.drivers && extent(
  data.drivers.curves.flatMap((one) => [...one.lower, ...one.upper]).filter((value) => value !== null));

// All curves share the scale of the target, so that they can be compared.
function dependence(host, width, label) {
  const { steps, labels, positions, lower, point: middle, upper } = data.drivers.curves[Number(host.dataset.part)];
  const [first, last] = [positions[0], positions.at(-1)];
  const maxLabels = Math.max(1, Math.floor(width / (9 * Math.max(...labels.map((one) => one.length)) + 14)));
  const every = Math.ceil(positions.length / maxLabels);
  const shown = steps ? positions.filter((_, i) => i % every === 0) : [first, last];
  const area = frame(host, {
    width, height: 210, label, y: padded(curveExtent), inset: steps ? 30 : 24,
    x: first === last ? [first - 1, last + 1] : [first, last], xTicks: first === last ? [first] : shown,
    xText: (value) => labels[positions.indexOf(value)],
  });
  const { plot, toX, toY } = area;
  if (steps) {
    const spans = positions.map((x, i) => `M${toX(x)} ${toY(lower[i])}V${toY(upper[i])}`);
    add(plot, "path", { class: "span", d: spans.join(""), "stroke-width": 10 });
    positions.forEach((x, i) => add(plot, "circle", { class: "dot", cx: toX(x), cy: toY(middle[i]), r: 4.5 }));
  } else {
    const ring = curve([...positions, ...positions.toReversed()], [...upper, ...lower.toReversed()], area);
    add(plot, "path", { class: "wash", d: `${ring}Z` });
    add(plot, "path", { class: "line", d: curve(positions, middle, area) });
  }
  const mark = marker(area, { class: "pick", r: 7 });
  hover(area, (x) => {
    const i = nearest(positions, toX.invert(x));
    mark(toX(positions[i]), toY(middle[i]));
    return [labels[i], `mean point prediction ${number(middle[i])}`, `mean interval ${number(lower[i])} to ${number(upper[i])}`];
  });
}

// ---- within and between networks, training -------------------------------------------------

function uncertainty(host, width, label) {
  const { aleatoric, epistemic } = data.uncertainty;
  const area = frame(host, {
    width, height: width < 560 ? 320 : 380, label, x: [0, 1.05 * Math.max(...aleatoric) || 1],
    y: [0, 1.08 * Math.max(...epistemic) || 1],
    xLabel: "within networks (aleatoric standard deviation)",
    yLabel: "between networks (epistemic standard deviation)",
  });
  const { plot, toX, toY } = area;
  const end = Math.max(...aleatoric, ...epistemic) * 2;
  add(plot, "path", { class: "ideal", d: curve([0, end], [0, end], area) });
  const places = aleatoric.map((value, i) => [toX(value), toY(epistemic[i])]);
  const size = total > 400 ? 3.5 : 5;
  const within = places.filter((_, i) => isInside(i, ownLevel));
  add(plot, "path", { class: "in soft", d: dots(within), "stroke-width": size });
  const missed = places.filter((_, i) => !isInside(i, ownLevel));
  add(plot, "path", { class: "out", d: missed.map((place) => diamond(...place, size)).join("") });
  const mark = marker(area, { class: "pick", r: 7 });
  hover(area, (x, y) => {
    const away = places.map((place) => Math.hypot(place[0] - x, place[1] - y));
    const i = nearest(away, 0);
    mark(...(away[i] < 30 ? places[i] : [null, null]));
    if (away[i] >= 30) return null;
    return [`Row ${names[i]}`, `within networks ${number(aleatoric[i])}`,
      `between networks ${number(epistemic[i])}`, `predicted ${number(point[i])}`,
      isInside(i, ownLevel) ? "inside" : "outside"];
  });
}

const KINDS = [["train", "", "training"], ["valid", " other", "validation"]];

function history(host, width, label) {
  const curves = data.history.flatMap((one) => [one.train, one.valid]).filter((one) => one[0].length);
  // Validation losses after a network's best epoch do not matter, and may exceed the chart.
  const best = data.history.map((one) => one.valid).filter((one) => one[0].length)
    .map(([epochs, losses]) => {
      const i = losses.indexOf(Math.min(...losses));
      return [epochs[i], losses[i]];
    });
  const values = data.history.flatMap((one) => one.train[1]).sort((a, b) => a - b);
  const ends = [values[0], values[Math.floor(0.98 * (values.length - 1))], ...best.map(([, loss]) => loss)];
  const last = Math.max(...curves.flatMap((one) => one[0]));
  const area = frame(host, {
    width, height: width < 560 ? 280 : 320, label, x: [0, last], xLabel: "epoch", yLabel: "loss",
    y: padded(extent(ends), 0.08),
  });
  const { plot, toX, toY } = area;
  const middles = KINDS.map(([part]) => median(data.history.map((one) => one[part])));
  KINDS.forEach(([part, kind], k) => {
    for (const one of [...data.history.map((network) => network[part]), middles[k]]) {
      const weight = one === middles[k] ? "line" : "faint";
      if (one[0].length) add(plot, "path", { class: `${weight}${kind}`, d: curve(...one, area) });
    }
  });
  for (const [epoch, loss] of best) add(plot, "circle", { class: "best", cx: toX(epoch), cy: toY(loss), r: 4 });
  hover(area, (x) => {
    const epoch = clamp(Math.round(toX.invert(x)), 1, last);
    const lines = KINDS.map(([, , name], k) => [name, ...middles[k]]).filter(([, epochs]) => epochs.length)
      .map(([name, epochs, losses]) => `${name} loss ${losses[nearest(epochs, epoch)].toPrecision(4)} (median)`);
    return [`Epoch ${epoch}`, ...lines];
  });
}

// The median of several curves, as long as half of the networks are still training.
function median(curves) {
  const used = curves.filter((one) => one[0].length);
  if (!used.length) return [[], []];
  const ends = used.map((one) => one[0].at(-1)).sort((a, b) => a - b);
  const grid = used.reduce((a, b) => (a[0].length > b[0].length ? a : b))[0];
  const epochs = grid.filter((epoch) => epoch <= ends[Math.floor(ends.length / 2)]);
  return [epochs, epochs.map((epoch) => {
    const at = used.filter((one) => one[0].at(-1) >= epoch)
      .map((one) => one[1][nearest(one[0], epoch)]).sort((a, b) => a - b);
    return at[Math.floor(at.length / 2)];
  })];
}

// ---- the page ------------------------------------------------------------------------------

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button")?.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => (down ? -1 : 1) * Number(row.cells[column].dataset.value);
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => key(a) - key(b)));
    });
  });
}

const charts = { strip, intervals, calibration, pit, group, drivers, dependence, uncertainty, history };

function redraw(host) {
  const width = Math.round(host.clientWidth);
  if (width > 0) charts[host.dataset.chart](host, width, host.dataset.label);
}

toolbar();
hintAtScrolling();
document.querySelectorAll("table.sortable").forEach(sortable);
const widths = new WeakMap();
const observer = new ResizeObserver((entries) => {
  for (const { target: host } of entries) {
    if (widths.get(host) === host.clientWidth) continue;
    widths.set(host, host.clientWidth);
    redraw(host);
  }
});
document.querySelectorAll("[data-chart]").forEach((host) => observer.observe(host));
window.addEventListener("scroll", hideTip, { passive: true });
// On paper nothing can be opened by a click: open everything while printing.
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((one) => { one.open = true; });
  document.querySelectorAll("[data-chart]:not(:has(svg))").forEach(redraw);
});
window.addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));
