// A sweep along one input: which values to predict, and where they are on the chart.

import { clamp, formatter, nearest, ticks } from "./charts.js";
import { stepOf } from "./controls.js";
import { days, isoDay, isoMinute, write } from "./dates.js";

const STEPS = 61;
const BEYOND = 0.12; // fraction of the training range by which a sweep goes beyond it
const CATEGORY = 55; // pixels per category

const isListed = ({ kind }) => kind === "category" || kind === "text" || kind === "boolean";

// The values of a column to predict for a chart of this width, including the chosen one.
export function sweepValues(column, chosen, width) {
  if (column.kind === "boolean") return [true, false];
  if (isListed(column)) {
    const most = clamp(Math.floor(width / CATEGORY), 4, 12);
    const shown = column.categories.slice(0, most);
    return chosen === null || shown.includes(chosen) ? shown : [...shown.slice(0, most - 1), chosen];
  }
  const place = column.kind === "date" ? days : Number;
  const [low, high] = [place(column.low), place(column.high)];
  const margin = BEYOND * (high - low || 1);
  const here = chosen === null ? low : place(chosen);
  const from = Math.min(low - margin, here), to = Math.max(high + margin, here);
  if (column.kind === "date") return sweepDates(column, from, to, here);
  return Array.from({ length: STEPS }, (_, i) => from + ((to - from) * i) / (STEPS - 1));
}

// Over longer times, every date of a sweep has the weekday and the time of day of the chosen one: a
// model may have learned weekly patterns, which arbitrary days would show as noise.
function sweepDates(column, from, to, here) {
  const rough = (to - from) / (STEPS - 1);
  const hours = write(column, 0).length > 10 && rough < 1;
  const step = hours ? Math.ceil(24 * rough) / 24 : rough < 4 ? Math.ceil(rough) : 7 * Math.ceil(rough / 7);
  const count = Math.ceil((here - from) / step);
  return Array.from({ length: count + Math.ceil((to - here) / step) + 1 }, (_, i) => write(column, here + (i - count) * step));
}

// Whether the chart of a sweep includes a value.
export function covers({ column, values }, value) {
  return value === null || (isListed(column) ? values.includes(value) : values[0] <= value && value <= values.at(-1));
}

// The positions, names and ticks of a chart of the sweep.
export function placed({ column, values }, chosen) {
  if (isListed(column)) {
    const names = values.map((value) => ({ true: "yes", false: "no" })[value] ?? value);
    return { places: values.map((_, i) => i), names, place: values.indexOf(chosen) };
  }
  if (column.kind === "number") {
    const { low, high } = column;
    const marks = (count) => ticks([values[0], values.at(-1)], count);
    return { places: values, low, high, place: chosen ?? NaN, marks, show: formatter(low, high) };
  }
  const places = values.map(days);
  const span = places.at(-1) - places[0];
  const marks = (count) => {
    const wanted = clamp(Math.floor(count), 2, 6);
    return Array.from({ length: wanted }, (_, i) => places[0] + ((i + 0.5) / wanted) * span);
  };
  const show = span < 4 ? (day) => isoMinute(day).slice(5).replace("T", " ") : isoDay;
  return { places, low: days(column.low), high: days(column.high), place: chosen === null ? NaN : days(chosen), marks, show };
}

// The value at a position of the chart.
export function valueAt({ column, values }, at) {
  if (isListed(column)) return values[clamp(Math.round(at), 0, values.length - 1)];
  if (column.kind === "date") return values[nearest(values.map(days), at)];
  const step = stepOf(column);
  return Number((Math.round(at / step) * step).toPrecision(12));
}

// A note on how much of a long list the chart shows.
export function partShown({ column, values }) {
  const all = column.categories.length;
  return isListed(column) && all > values.length
    ? `the ${values.length} of ${all.toLocaleString()} values that are most frequent in training` : "";
}
