// Charts as plain SVG, for reports and for the server's page. Text is set through textContent only.

export const range = (count) => Array.from({ length: count }, (_, i) => i);
export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
export const extent = (values) => [Math.min(...values), Math.max(...values)];
export const percent = (value, places = 1) => `${Number((100 * value).toFixed(places))}%`;
export const nearest = (values, wanted) => values.reduce(
  (best, value, i) => (Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? i : best), 0);

export function plain(value) {
  const size = Math.abs(value);
  if (size && (size >= 1e6 || size < 1e-4)) return value.toExponential(1).replace("e+", "e");
  return value.toLocaleString("en", { maximumSignificantDigits: 6 }).replace("-", "−");
}

// A function that formats values with enough decimals to distinguish values of this range.
export function formatter(low, high) {
  const span = Math.abs(high - low) || Math.abs(high) || 1;
  const maximumFractionDigits = clamp(Math.ceil(-Math.log10(span / 500)), 0, 8);
  return (value) => (value || 0).toLocaleString(undefined, { maximumFractionDigits }).replace("-", "−");
}

export function add(parent, name, attributes = {}, text = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return parent.appendChild(node);
}

export function scale([from, to], [start, end]) {
  const slope = (end - start) / (to - from || 1);
  const map = (value) => start + (value - from) * slope;
  map.invert = (place) => from + (place - start) / slope;
  return map;
}

export function ticks([low, high], count) {
  const rough = (high - low || 1) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return range(last - first + 1).map((i) => Number(((first + i) * step).toPrecision(12)));
}

export function padded([low, high], fraction = 0.05) {
  const margin = (high - low) * fraction || Math.abs(high) * fraction || 1;
  return [low - margin, high + margin];
}

export const line = (points) =>
  points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

export const curve = (xs, ys, { toX, toY }) => line(xs.map((x, i) => [toX(x), toY(ys[i])]));

export const dots = (points) => points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("");

export const diamond = (x, y, size) =>
  `M${(x - size).toFixed(1)} ${y.toFixed(1)}l${size} ${-size} ${size} ${size} ${-size} ${size}z`;

// Replaces the SVG of `host` by an empty one.
export function canvas(host, width, height, label) {
  host.querySelector("svg")?.remove();
  const svg = add(host, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  host.prepend(svg);
  return svg;
}

// Draws axes; returns the SVG, a clipped group to draw in, the scales and the edges.
export function frame(host, { width, height, label, x, y, ...options }) {
  const svg = canvas(host, width, height, label);
  const yTicks = options.yTicks ?? ticks(y, 5);
  const xTicks = options.xTicks ?? ticks(x, width < 480 ? 4 : 7);
  const yText = options.yText ?? plain;
  const xText = options.xText ?? plain;
  const widest = Math.max(0, ...yTicks.map((value) => yText(value).length));
  const [left, right, top] = [14 + 7.2 * widest, width - 12, options.yLabel ? 22 : 14];
  const bottom = height - 7 - (xTicks.length ? 18 : 0) - (options.xLabel ? 15 : 0);
  const toX = scale(x, [left + (options.inset ?? 0), right - (options.inset ?? 0)]);
  const toY = scale(y, [bottom, top]);
  for (const value of yTicks) {
    add(svg, "line", { class: "grid", x1: left, x2: right, y1: toY(value), y2: toY(value) });
    add(svg, "text", { x: left - 8, y: toY(value) + 4, "text-anchor": "end" }, yText(value));
  }
  for (const value of xTicks) {
    const kind = value === options.strong ? "strong" : "";
    const at = { x: toX(value), y: bottom + 17, "text-anchor": "middle", class: kind };
    const node = add(svg, "text", at, xText(value));
    if (options.xTitle) add(node, "title", {}, options.xTitle(value));
  }
  add(svg, "line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
  const middle = { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" };
  if (options.xLabel) add(svg, "text", middle, options.xLabel);
  if (options.yLabel) add(svg, "text", { x: 0, y: 11 }, options.yLabel);
  const id = `clip-${host.dataset.chart ?? host.id}${host.dataset.part ?? ""}`;
  const clip = add(svg, "clipPath", { id });
  add(clip, "rect", { x: left, y: top - 4, width: right - left, height: bottom - top + 5 });
  const plot = add(svg, "g", { "clip-path": `url(#${id})` });
  return { svg, plot, toX, toY, left, right, top, bottom, width };
}

// Shows a tooltip, the element `#tip`, next to the pointer.
export function showTip(lines, left, top) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(...lines.map((text) =>
    Object.assign(document.createElement("div"), { textContent: text })));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${clamp(left - width / 2, 6, window.innerWidth - width - 6)}px`;
  tip.style.top = `${top - height - 14 > 6 ? top - height - 14 : top + 18}px`;
}

export const hideTip = () => { document.getElementById("tip").hidden = true; };

// The position of a pointer in the coordinates of an SVG.
export function pointer({ svg, width }, event) {
  const box = svg.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top].map((place) => place * width / box.width);
}

// Calls `at` with the position of the pointer; `at` returns the lines of the tooltip, or null.
export function hover(area, at) {
  area.svg.addEventListener("pointermove", (event) => {
    const lines = at(...pointer(area, event));
    if (lines) showTip(lines, event.clientX, event.clientY);
    else hideTip();
  });
  area.svg.addEventListener("pointerleave", hideTip);
}

// A function that moves a mark to a position; the mark disappears when the pointer leaves.
export function marker({ svg, plot }, attributes) {
  const mark = add(plot, "circle", { ...attributes, visibility: "hidden" });
  svg.addEventListener("pointerleave", () => mark.setAttribute("visibility", "hidden"));
  return (x, y) => {
    mark.setAttribute("cx", x);
    mark.setAttribute("cy", y);
    mark.setAttribute("visibility", x === null ? "hidden" : "visible");
  };
}

// Shows a hint to scroll above tables that are wider than the screen.
export function hintAtScrolling() {
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const host = target.closest(".scroll");
      host.classList.toggle("scrolls", host.scrollWidth > host.clientWidth + 1);
    }
  });
  document.querySelectorAll(".scroll, .scroll > table").forEach((one) => observer.observe(one));
}
