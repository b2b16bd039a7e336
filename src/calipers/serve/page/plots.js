// The page's two charts: a predictive density, and a prediction along one input.

import { add, clamp, curve, formatter, frame, line, ticks } from "./charts.js";

const isNumber = Number.isFinite; // infinite bounds are null

// Density of a split normal; `s` has loc, left_scale and right_scale.
function splitNormal(s, at) {
  const width = at < s.loc ? s.left_scale : s.right_scale;
  const height = Math.sqrt(2 / Math.PI) / (s.left_scale + s.right_scale);
  return height * Math.exp(-0.5 * ((at - s.loc) / width) ** 2);
}

// Mean over neighbours with normal weights. Calibration leaves steps in a density that mean nothing
// for the target. They are smoothed, as the caption notes; the interval is not.
function smooth(heights, reach) {
  const weights = Array.from({ length: 6 * reach + 1 }, (_, i) => Math.exp(-0.5 * ((i - 3 * reach) / reach) ** 2));
  const total = weights.reduce((a, b) => a + b);
  return heights.map((_, i) =>
    weights.reduce((sum, weight, j) => sum + weight * (heights[i + j - 3 * reach] ?? 0), 0) / total);
}

// The range of the chart stays while the density moves within it, and changes when the density
// leaves it or becomes small.
function steady(before, low, high) {
  const inside = before && low >= before[0] && high <= before[1];
  if (inside && high - low > 0.3 * (before[1] - before[0])) return before;
  const margin = 0.2 * (high - low || 1);
  return [low - margin, high + margin];
}

// The density of each network at the places `at`. The server sends the split normals: their curves
// would be five times the whole response, with every step of a slider. If networks have several,
// their weights add up to 1 over all networks.
export function memberCurves(members, networks, at) {
  const each = members.length / networks;
  const height = (place) => (sum, part) => sum + (part.weight ? networks * part.weight : 1) * splitNormal(part, place);
  return Array.from({ length: networks }, (_, i) => members.slice(i * each, (i + 1) * each))
    .map((parts) => at.map((place) => parts.reduce(height(place), 0)));
}

// The points and heights of the density, without invisible tails.
function visible({ x, y }) {
  const heights = smooth(y.map((value) => value ?? 0), Math.ceil(x.length / 45));
  const least = 0.005 * Math.max(...heights);
  const first = heights.findIndex((value) => value > least);
  const last = heights.findLastIndex((value) => value > least) + 1;
  return { at: x.slice(first, last), heights: heights.slice(first, last) };
}

// `networks` is how many networks to show, 0 for none.
export function drawDensity(host, prediction, target, networks, before) {
  const show = formatter(target.low, target.high);
  const { lower, upper } = prediction.intervals[0] ?? { lower: null, upper: null };
  const bounds = [lower, upper].filter(isNumber);
  const shape = prediction.density?.y.some((value) => value > 0) ? visible(prediction.density) : null;
  const atoms = (prediction.atoms?.x ?? []).map((at, i) => ({ at, mass: prediction.atoms.mass[i] })).filter(({ mass }) => mass > 5e-4);
  const reach = [prediction.point, ...bounds, ...(shape ? [shape.at[0], shape.at.at(-1)] : []), ...atoms.map(({ at }) => at)];
  const x = steady(before, Math.min(...reach), Math.max(...reach));
  const curves = shape && networks && prediction.members ? memberCurves(prediction.members, networks, shape.at) : [];
  const tallest = shape ? Math.max(...shape.heights) || 1 : 1;
  const width = host.clientWidth || 600, height = host.clientHeight || 260;
  const interval = bounds.length ? `the interval ${bounds.map(show).join(" to ")}` : "there is no finite interval";
  const area = frame(host, {
    width, height, x, yTicks: [], xTicks: ticks(x, width / 85), xText: show,
    y: [0, 1.04 * clamp(Math.max(tallest, ...curves.flat()), tallest, 2.5 * tallest)],
    label: `The point prediction is ${show(prediction.point)}, ${interval}.`,
  });
  const { plot, toX, toY, top, bottom } = area;
  const upright = (kind, at) => add(plot, "line", { class: kind, x1: toX(at), x2: toX(at), y1: top, y2: bottom });
  if (shape) drawShape(area, shape, lower ?? -Infinity, upper ?? Infinity);
  else if (bounds.length && !atoms.length) {
    const [start, end] = bounds.map(toX);
    add(plot, "rect", { class: "area inner", x: start, width: Math.max(1, end - start), y: bottom - 60, height: 60 });
  }
  for (const one of curves) add(plot, "path", { class: "member", d: curve(shape.at, one, { toX, toY }) });
  if (shape) add(plot, "path", { class: "line", d: curve(shape.at, shape.heights, { toX, toY }) });
  for (const bound of bounds) upright("bound", bound);
  drawAtoms(area, atoms, shape ? 1 : Math.max(...atoms.map(({ mass }) => mass)), bounds);
  upright("here", prediction.point);
  add(area.svg, "circle", { class: "ring", cx: toX(prediction.point), cy: bottom, r: 5 });
  return x;
}

// Mass on single values as bars: with a density, the full height is a probability of 1; without
// one, it is that of the most likely value.
function drawAtoms({ plot, toX, top, bottom }, atoms, most, [lower, upper]) {
  for (const { at, mass } of atoms) {
    const kind = at >= lower && at <= upper ? "atom inner" : "atom";
    const x = toX(at), y2 = bottom - 0.96 * (bottom - top) * (mass / most);
    add(plot, "line", { class: kind, x1: x, x2: x, y1: bottom, y2 });
  }
}

// The area under a density, darker within the interval.
function drawShape({ plot, toX, toY, bottom }, { at, heights }, lower, upper) {
  const heightAt = (place) => {
    const i = at.findIndex((value) => value >= place);
    if (i <= 0) return heights.at(i); // before the first, or after the last
    const fraction = (place - at[i - 1]) / (at[i] - at[i - 1]);
    return heights[i - 1] + fraction * (heights[i] - heights[i - 1]);
  };
  const fill = (kind, places) => {
    const points = places.map((place) => [toX(place), toY(heightAt(place))]);
    const ends = [[points.at(-1)[0], bottom], [points[0][0], bottom]];
    add(plot, "path", { class: kind, d: `${line([...points, ...ends])}Z` });
  };
  fill("area", at);
  if (Number.isFinite(lower)) fill("area inner", [lower, ...at.filter((place) => place > lower && place < upper), upper]);
}

// `sweep` has places (numbers, or positions of categories), names (of categories), predictions, low
// and high of the training range, the current place and point, tick marks and their formatter.
export function drawSweep(host, sweep, target, label) {
  const width = host.clientWidth || 600, height = host.clientHeight || 260;
  const show = formatter(target.low, target.high);
  const all = sweep.predictions.flatMap((p) => [p.point, p.intervals[0]?.lower, p.intervals[0]?.upper]).filter(isNumber);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const margin = 0.04 * (high - low || 1);
  const count = sweep.places.length;
  const inset = sweep.names ? (width - 60) / count / 2 : 0;
  const most = Math.max(2, Math.floor((width - 60) / count / 7.5));
  const short = (name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
  const area = frame(host, {
    width, height, label, inset, x: [sweep.places[0], sweep.places.at(-1)], y: [low - margin, high + margin],
    yTicks: ticks([low, high], height / 55), yText: show,
    xTicks: sweep.names ? sweep.places : sweep.marks(width / 120),
    xText: sweep.names ? (i) => short(sweep.names[i]) : sweep.show,
    ...(sweep.names ? { strong: sweep.place, xTitle: (i) => sweep.names[i] } : {}),
  });
  (sweep.names ? drawCategories : drawBand)(area, sweep);
  return (event) => area.toX.invert(event.clientX - area.svg.getBoundingClientRect().left);
}

function drawBand({ svg, plot, toX, toY, left, right, top, bottom }, sweep) {
  for (const [start, end] of [[left, toX(sweep.low)], [toX(sweep.high), right]]) {
    if (end - start > 0.5) add(plot, "rect", { class: "unseen", x: start, width: end - start, y: top, height: bottom - top });
  }
  const points = sweep.predictions.map((p, i) => [toX(sweep.places[i]), p.intervals[0] ?? {}, toY(p.point)]);
  const band = points.filter(([, interval]) => isNumber(interval.lower));
  const upper = band.map(([x, interval]) => [x, toY(interval.upper)]);
  const lower = band.map(([x, interval]) => [x, toY(interval.lower)]).reverse();
  if (band.length) add(plot, "path", { class: "area inner", d: `${line([...upper, ...lower])}Z` });
  add(plot, "path", { class: "line", d: line(points.map(([x, , y]) => [x, y])) });
  if (!isNumber(sweep.place)) return;
  const here = clamp(toX(sweep.place), left, right);
  add(plot, "line", { class: "here", x1: here, x2: here, y1: top, y2: bottom });
  add(svg, "circle", { class: "ring", cx: here, cy: toY(sweep.point), r: 5 });
}

function drawCategories({ plot, toX, toY }, sweep) {
  sweep.predictions.forEach((p, i) => {
    const x = toX(sweep.places[i]);
    const { lower, upper } = p.intervals[0] ?? {};
    if (isNumber(lower)) {
      add(plot, "rect", { class: "area inner", rx: 5, x: x - 9, width: 18, y: toY(upper), height: toY(lower) - toY(upper) });
    }
    const present = sweep.places[i] === sweep.place;
    add(plot, "circle", { class: "ring", cx: x, cy: toY(p.point), r: present ? 6.5 : 4.5 });
  });
}
