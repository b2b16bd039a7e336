// Two charts as SVG: a predictive density, and a prediction along one input.

const SVG = "http://www.w3.org/2000/svg";
const EDGE = { top: 14, right: 12, bottom: 26, left: 12 };

export function formatter(low, high) {
  const span = Math.abs(high - low) || Math.abs(high) || 1;
  const digits = Math.min(8, Math.max(0, Math.ceil(-Math.log10(span / 500))));
  return (value) =>
    value === null || !Number.isFinite(value)
      ? "∞"
      : (value + 0 || 0).toLocaleString(undefined, { maximumFractionDigits: digits });
}

function make(parent, tag, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  parent.appendChild(node);
  return node;
}

function canvas(holder, label) {
  const width = holder.clientWidth || 600;
  const height = holder.clientHeight || 260;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  return { svg, width, height };
}

function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) found.push(i * step || 0);
  return found;
}

const scale = (from, to, a, b) => (value) => a + ((value - from) / (to - from || 1)) * (b - a);

const line = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");

function axisBelow(svg, marks, x, height, show) {
  const group = make(svg, "g", { class: "axis" });
  const bottom = height - EDGE.bottom;
  for (const mark of marks) {
    make(group, "line", { x1: x(mark), x2: x(mark), y1: bottom, y2: bottom + 5 });
    make(group, "text", { x: x(mark), y: bottom + 19, "text-anchor": "middle" }, show(mark));
  }
  return group;
}

// Density of a split normal; `s` has loc, left_scale and right_scale.
function splitNormal(s, at) {
  const width = at < s.loc ? s.left_scale : s.right_scale;
  const height = Math.sqrt(2 / Math.PI) / (s.left_scale + s.right_scale);
  return height * Math.exp(-0.5 * ((at - s.loc) / width) ** 2);
}

// Mean over neighbours with normal weights. Calibration leaves steps in a density that say nothing
// about the target; they are smoothed over, as the caption says, the interval is not touched.
function smooth(heights, reach) {
  const weights = Array.from({ length: 6 * reach + 1 }, (_, i) => Math.exp(-0.5 * ((i - 3 * reach) / reach) ** 2));
  const total = weights.reduce((a, b) => a + b);
  return heights.map((_, i) =>
    weights.reduce((sum, weight, j) => sum + weight * (heights[i + j - 3 * reach] ?? 0), 0) / total);
}

// What a chart shows stays put while the density moves within it, and follows when it leaves or
// has become small.
function frame(before, low, high) {
  const inside = before && low >= before.low && high <= before.high;
  if (inside && high - low > 0.3 * (before.high - before.low)) return before;
  const room = 0.2 * (high - low || 1);
  return { low: low - room, high: high + room };
}

export function drawDensity(holder, answer, target, withMembers, before) {
  const show = formatter(target.low, target.high);
  const interval = answer.intervals[0] ?? { lower: null, upper: null };
  const label = `The point is ${show(answer.point)}, the interval ${show(interval.lower)} to ${show(interval.upper)}.`;
  const { svg, width, height } = canvas(holder, label);
  const reach = [answer.point, interval.lower, interval.upper];
  if (answer.density) reach.push(answer.density.x[0], answer.density.x.at(-1));
  const finite = reach.filter((value) => Number.isFinite(value));
  const domain = frame(before, Math.min(...finite), Math.max(...finite));
  const { low, high } = domain;
  const x = scale(low, high, EDGE.left, width - EDGE.right);
  const bottom = height - EDGE.bottom;
  make(make(svg, "g", { class: "axis" }), "line", { x1: 0, x2: width, y1: bottom, y2: bottom });
  if (answer.density) drawCurves(svg, answer, interval, x, bottom, withMembers);
  for (const bound of [interval.lower, interval.upper]) {
    if (Number.isFinite(bound)) {
      make(svg, "line", { class: "bound", x1: x(bound), x2: x(bound), y1: EDGE.top, y2: bottom });
    }
  }
  if (!answer.density && Number.isFinite(interval.lower)) {
    const box = { x: x(interval.lower), width: Math.max(1, x(interval.upper) - x(interval.lower)) };
    make(svg, "rect", { class: "area-in", y: bottom - 60, height: 60, ...box });
  }
  make(svg, "line", { class: "mark", x1: x(answer.point), x2: x(answer.point), y1: EDGE.top, y2: bottom });
  make(svg, "circle", { class: "dot", cx: x(answer.point), cy: bottom, r: 5 });
  axisBelow(svg, ticks(low, high, width / 85), x, height, show);
  holder.replaceChildren(svg);
  return domain;
}

function drawCurves(svg, answer, interval, x, bottom, withMembers) {
  const { x: at, y: density } = answer.density;
  const heights = smooth(density.map((value) => value ?? 0), Math.ceil(at.length / 45));
  const curves = (withMembers ? answer.members : []).map((m) => at.map((place) => splitNormal(m, place)));
  const top = Math.max(...heights, ...curves.flat()) || 1;
  const y = scale(0, top * 1.04, bottom, EDGE.top);
  const points = at.map((place, i) => [x(place), y(heights[i])]);
  const closed = (part) =>
    part.length ? `${line(part)}L${part.at(-1)[0]} ${bottom}L${part[0][0]} ${bottom}Z` : "";
  make(svg, "path", { class: "area-out", d: closed(points) });
  const within = [];
  const lower = interval.lower ?? -Infinity, upper = interval.upper ?? Infinity;
  const heightAt = (place) => {
    const i = at.findIndex((value) => value >= place);
    if (i <= 0) return heights[0];
    const share = (place - at[i - 1]) / (at[i] - at[i - 1]);
    return heights[i - 1] + share * (heights[i] - heights[i - 1]);
  };
  if (lower > at[0]) within.push([x(lower), y(heightAt(lower))]);
  at.forEach((place, i) => place >= lower && place <= upper && within.push(points[i]));
  if (upper < at.at(-1)) within.push([x(upper), y(heightAt(upper))]);
  make(svg, "path", { class: "area-in", d: closed(within) });
  for (const curve of curves) {
    make(svg, "path", { class: "member", d: line(at.map((place, i) => [x(place), y(curve[i])])) });
  }
  make(svg, "path", { class: "curve", d: line(points) });
}

// `sweep` has places (numbers, or positions of categories), names (for categories), predictions,
// low and high of training, the present place, and how to write a place.
export function drawSweep(holder, sweep, target, label) {
  const { svg, width, height } = canvas(holder, label);
  const show = formatter(target.low, target.high);
  const bounds = sweep.predictions.flatMap((p) => [p.point, p.intervals[0]?.lower, p.intervals[0]?.upper]);
  const finite = bounds.filter((value) => Number.isFinite(value));
  const low = Math.min(...finite), high = Math.max(...finite);
  const marks = ticks(low, high, height / 55);
  const left = 14 + 7.2 * Math.max(...marks.map((mark) => show(mark).length));
  const y = scale(low - 0.04 * (high - low), high + 0.04 * (high - low), height - EDGE.bottom, EDGE.top);
  const from = sweep.places[0], to = sweep.places.at(-1);
  const pad = sweep.names ? (width - left) / sweep.places.length / 2 : 0;
  const x = scale(from, to, left + pad, width - EDGE.right - pad);
  const axis = make(svg, "g", { class: "axis" });
  for (const mark of marks) {
    make(axis, "line", { x1: left, x2: width - EDGE.right, y1: y(mark), y2: y(mark) });
    make(axis, "text", { x: left - 8, y: y(mark) + 4, "text-anchor": "end" }, show(mark));
  }
  if (sweep.names) drawCategories(svg, sweep, x, y, height);
  else drawBand(svg, sweep, x, y, width, height, left);
  holder.replaceChildren(svg);
  return { invert: (pixel) => from + ((pixel - x(from)) / (x(to) - x(from) || 1)) * (to - from) };
}

function drawBand(svg, sweep, x, y, width, height, left) {
  const top = EDGE.top, tall = height - EDGE.bottom - EDGE.top;
  const right = width - EDGE.right;
  const unseen = [[left, x(sweep.low)], [x(sweep.high), right]];
  for (const [a, b] of unseen) {
    if (b - a > 0.5) make(svg, "rect", { class: "unseen-area", x: a, width: b - a, y: top, height: tall });
  }
  const known = sweep.predictions.map((p, i) => [x(sweep.places[i]), p.intervals[0], p.point]);
  const band = known.filter(([, interval]) => interval && Number.isFinite(interval.lower));
  const upper = band.map(([at, interval]) => [at, y(interval.upper)]);
  const lower = band.map(([at, interval]) => [at, y(interval.lower)]).reverse();
  if (band.length) make(svg, "path", { class: "area-in", d: `${line([...upper, ...lower])}Z` });
  make(svg, "path", { class: "curve", d: line(known.map(([at, , point]) => [at, y(point)])) });
  const here = Math.min(right, Math.max(left, x(sweep.place)));
  if (Number.isFinite(here)) {
    make(svg, "line", { class: "mark", x1: here, x2: here, y1: top, y2: top + tall });
    make(svg, "circle", { class: "dot", cx: here, cy: y(sweep.point), r: 5 });
  }
  axisBelow(svg, sweep.marks(width / 120), x, height, sweep.show);
}

function drawCategories(svg, sweep, x, y, height) {
  sweep.predictions.forEach((p, i) => {
    const at = x(sweep.places[i]);
    const interval = p.intervals[0];
    if (interval && Number.isFinite(interval.lower)) {
      const box = { x: at - 9, width: 18, y: y(interval.upper), height: y(interval.lower) - y(interval.upper) };
      make(svg, "rect", { class: "area-in", rx: 5, ...box });
    }
    const present = sweep.places[i] === sweep.place;
    make(svg, "circle", { class: "dot", cx: at, cy: y(p.point), r: present ? 6.5 : 4.5 });
    const room = sweep.places.length > 1 ? x(1) - x(0) : 200;
    const most = Math.max(2, Math.floor(room / 7.5));
    const name = sweep.names[i];
    const shown = name.length > most ? `${name.slice(0, most - 1)}…` : name;
    const text = { x: at, y: height - EDGE.bottom + 19, "text-anchor": "middle", class: present ? "strong" : "" };
    make(make(svg, "text", text, shown), "title", {}, name);
  });
}

export { ticks };
