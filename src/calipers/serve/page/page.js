// The page: one model, one row of inputs, and what the model says about it.

import { Latest, Refusal, call, post } from "./api.js";
import { drawDensity, drawSweep, formatter, ticks } from "./charts.js";
import { control, days, isoDay, stepOf, typical } from "./controls.js";
import { Scorer, fill } from "./table.js";

const POINTS = 241; // of a density
const STEPS = 61; // of a sweep
const BEYOND = 0.12; // part of its range by which a sweep goes beyond what training saw
const MOST_CATEGORIES = 12;

const get = (id) => document.getElementById(id);
const state = { models: [], limits: null, model: null, row: {}, coverage: null, answer: null, sweep: null };
const controls = new Map();
const answering = new Latest(showBusy);
const sweeping = new Latest(showBusy);

function showBusy() {
  get("busy").classList.toggle("on", answering.busy || sweeping.busy);
}

async function start() {
  const { models, limits } = await (await call("/v1/models")).json();
  Object.assign(state, { models, limits });
  const choice = get("model");
  choice.replaceChildren(...models.map(({ name }) => new Option(name, name)));
  get("chooser").hidden = models.length < 2;
  get("model-name").textContent = models.length < 2 ? models[0].name : "";
  choice.addEventListener("change", () => choose(choice.value));
  const asked = decodeURIComponent(location.hash.slice(1));
  const first = models.find(({ name }) => name === asked) ?? models[0];
  choice.value = first.name;
  get("main").hidden = false;
  choose(first.name);
}

function choose(name) {
  answering.cancel();
  sweeping.cancel();
  const model = state.models.find((one) => one.name === name);
  const inputs = model.inputs.filter((column) => column.used);
  Object.assign(state, { model, inputs, answer: null, sweep: null, domain: null, coverage: model.coverage });
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  document.title = `${name} · calipers`;
  get("target").textContent = model.target.name;
  get("coverage-row").hidden = model.coverage === null;
  for (const id of ["coverage", "coverage-value"]) get(id).disabled = !model.any_coverage;
  get("members-label").hidden = !model.any_coverage;
  get("density-key").textContent = model.any_coverage ? "predictive density, smoothed; the interval shaded" : "interval";
  get("members-key").textContent = `each of the ${model.members} networks, before calibration`;
  showCoverage();
  buildControls(inputs);
  buildSweep(inputs);
  describe(model);
  scorer.clear();
  reset();
}

function buildControls(inputs) {
  controls.clear();
  const boxes = inputs.map((column, number) => {
    const made = control(column, number, (value) => {
      state.row[column.name] = value;
      update(column.name);
    });
    controls.set(column.name, made);
    return made.box;
  });
  get("controls").replaceChildren(...boxes);
  get("filter").hidden = inputs.length < 13;
  get("filter").value = "";
}

function buildSweep(inputs) {
  const select = get("sweep-input");
  select.replaceChildren(...inputs.map(({ name }) => new Option(name, name)));
  const first = inputs.find(({ kind }) => kind === "number") ?? inputs[0];
  select.value = first.name;
}

function reset() {
  state.row = Object.fromEntries(state.inputs.map((column) => [column.name, typical(column)]));
  for (const column of state.inputs) controls.get(column.name).set(state.row[column.name]);
  update();
}

function showCoverage() {
  if (state.coverage === null) return;
  get("coverage").value = state.coverage;
  get("coverage").setAttribute("aria-valuetext", `${Number((100 * state.coverage).toFixed(4))} percent`);
  get("coverage-value").value = Number((100 * state.coverage).toFixed(4));
}

function setCoverage(value, typed = false) {
  if (!(value > 0 && value < 1)) return;
  const shown = get("coverage-value").value;
  state.coverage = value;
  showCoverage();
  if (typed) get("coverage-value").value = shown;
  update();
}

// What has changed decides what is asked again: a sweep along an input depends on it only where it
// is beyond what the sweep shows.
function update(changed = null) {
  answering.run(askAnswer);
  const own = changed !== null && changed === get("sweep-input").value;
  if (!own || !state.sweep || !state.sweep.covers(state.row[changed])) sweeping.run(askSweep);
  showCurl();
}

const path = () => `/v1/models/${encodeURIComponent(state.model.name)}/predict`;

function question(rows, more = {}) {
  const coverage = state.coverage === null ? {} : { coverage: [state.coverage] };
  return { rows, ...coverage, record: false, ...more };
}

async function guarded(work) {
  try {
    await work();
    get("trouble").hidden = true;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    get("trouble").textContent = error.message;
    get("trouble").hidden = false;
  }
}

const askAnswer = (signal) =>
  guarded(async () => {
    const more = state.model.any_coverage ? { parameters: true, density: POINTS } : {};
    const { predictions } = await post(path(), question([state.row], more), signal);
    state.answer = predictions[0];
    showAnswer();
  });

const askSweep = (signal) =>
  guarded(async () => {
    const column = state.inputs.find(({ name }) => name === get("sweep-input").value);
    const values = sweepValues(column);
    const rows = values.map((value) => ({ ...state.row, [column.name]: value }));
    const { predictions } = await post(path(), question(rows), signal);
    const [first, last] = [values[0], values.at(-1)];
    const listed = column.kind === "category" || column.kind === "boolean";
    const covers = (value) => value === null || (listed ? values.includes(value) : first <= value && value <= last);
    state.sweep = { column, values, predictions, covers };
    showSweep();
  });

function sweepValues(column) {
  if (column.kind === "boolean") return [true, false];
  if (column.kind === "category") {
    const chosen = state.row[column.name];
    const shown = column.categories.slice(0, MOST_CATEGORIES);
    return chosen === null || shown.includes(chosen) ? shown : [...shown.slice(0, MOST_CATEGORIES - 1), chosen];
  }
  const date = column.kind === "date";
  const [low, high] = date ? [days(column.low), days(column.high)] : [column.low, column.high];
  const margin = BEYOND * (high - low || 1);
  const chosen = state.row[column.name];
  const here = chosen === null ? low : date ? days(chosen) : chosen;
  const from = Math.min(low - margin, here), to = Math.max(high + margin, here);
  if (date) return sweepDays(from, to, here);
  return Array.from({ length: STEPS }, (_, i) => from + ((to - from) * i) / (STEPS - 1));
}

// Over longer times every day of a sweep is of one weekday, that of the chosen one: a model may know
// weeks, and days taken here and there would show them as noise.
function sweepDays(from, to, here) {
  const rough = Math.ceil((to - from) / (STEPS - 1));
  const step = rough < 4 ? rough : 7 * Math.ceil(rough / 7);
  const found = [];
  for (let day = here - step * Math.ceil((here - from) / step); day < to + step; day += step) found.push(isoDay(day));
  return found;
}

function showAnswer() {
  const { answer, model } = state;
  const show = formatter(model.target.low, model.target.high);
  get("point").textContent = show(answer.point);
  const interval = answer.intervals[0];
  const line = get("interval");
  line.replaceChildren();
  if (interval) {
    const bounds = document.createElement("strong");
    bounds.textContent = `${show(interval.lower === null ? null : interval.lower).replace(/^∞/, "−∞")} to ${show(interval.upper)}`;
    line.append(bounds, ` with ${Number((100 * interval.coverage).toFixed(2))}% probability`);
  }
  get("mini-point").textContent = `${model.target.name} ${get("point").textContent}`;
  get("mini-interval").textContent = interval ? line.firstChild.textContent : "";
  const names = answer.outside;
  get("mini").classList.toggle("unseen", names.length > 0);
  for (const column of state.inputs) controls.get(column.name).mark(names.includes(column.name));
  const shown = names.slice(0, 4).join(", ") + (names.length > 4 ? ` and ${names.length - 4} more` : "");
  get("outside").hidden = names.length === 0;
  get("outside").textContent = names.length
    ? `${shown} ${names.length > 1 ? "are" : "is"} outside of what the model has seen. Trust this prediction less; its interval may be too narrow.`
    : "";
  state.domain = drawDensity(get("density"), answer, model.target, get("members").checked, state.domain);
  if (state.sweep) showSweep();
}

function showSweep() {
  const { column, values, predictions } = state.sweep;
  const { answer, model } = state;
  if (!answer || !predictions.length) return;
  const chosen = state.row[column.name];
  const sweep = { predictions, point: answer.point };
  if (column.kind === "category" || column.kind === "boolean") {
    sweep.places = values.map((_, i) => i);
    sweep.names = values.map((value) => (column.kind === "boolean" ? (value ? "yes" : "no") : value));
    sweep.place = values.indexOf(chosen);
  } else if (column.kind === "date") {
    Object.assign(sweep, { places: values.map(days), low: days(column.low), high: days(column.high), show: isoDay });
    sweep.place = chosen === null ? NaN : days(chosen);
    sweep.marks = (count) => {
      const wanted = Math.max(2, Math.min(6, Math.floor(count)));
      const span = sweep.places.at(-1) - sweep.places[0];
      return Array.from({ length: wanted }, (_, i) => sweep.places[0] + ((i + 0.5) / wanted) * span);
    };
  } else {
    const show = formatter(column.low, column.high);
    Object.assign(sweep, { places: values, low: column.low, high: column.high, show });
    sweep.place = chosen === null ? NaN : chosen;
    sweep.marks = (count) => ticks(values[0], values.at(-1), count);
  }
  const label = `${model.target.name} along ${column.name}, everything else as chosen.`;
  state.chart = drawSweep(get("sweep"), sweep, model.target, label);
}

// Dragging along the chart moves the input.
function drag(event) {
  if (!state.sweep || !state.chart || (event.type === "pointermove" && !event.buttons)) return;
  const { column, values } = state.sweep;
  const at = state.chart.invert(event.clientX - get("sweep").getBoundingClientRect().left);
  let value;
  if (column.kind === "category" || column.kind === "boolean") {
    value = values[Math.min(values.length - 1, Math.max(0, Math.round(at)))];
  } else if (column.kind === "date") {
    value = isoDay(at);
  } else {
    const step = stepOf(column);
    value = Number((Math.round(at / step) * step).toPrecision(12));
  }
  state.row[column.name] = value;
  controls.get(column.name).set(value);
  update(column.name);
}

function describe(model) {
  const about = model.about ?? {};
  const entries = [
    ["Predicts", model.target.name],
    ["In training", `${formatter(model.target.low, model.target.high)(model.target.low)} to ${formatter(model.target.low, model.target.high)(model.target.high)}`],
    ["Coverage", model.coverage === null ? null : `${Number((100 * model.coverage).toFixed(2))}%`],
    ["Networks", model.members],
    ["Rows", about.rows?.toLocaleString()],
    ["Fitted", about.fitted_at?.slice(0, 16).replace("T", " ")],
    ["Held-out rows inside", about.evaluation ? `${(100 * about.evaluation.coverage_rate).toFixed(1)}% of ${about.evaluation.rows.toLocaleString()}` : null],
    ["Error of the point (RMSE)", about.evaluation ? formatter(0, about.evaluation.rmse)(about.evaluation.rmse) : null],
    ["calipers", about.versions?.calipers],
  ];
  const nodes = entries.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => {
    const pair = document.createElement("div");
    pair.append(Object.assign(document.createElement("dt"), { textContent: name }));
    pair.append(Object.assign(document.createElement("dd"), { textContent: value }));
    return pair;
  });
  get("about").replaceChildren(...nodes);
  const rows = model.inputs.map((c) => [
    c.name, c.used ? c.kind : `${c.kind}, not used`, c.low ?? "", c.typical ?? "", c.high ?? "",
    c.categories.slice(0, 5).join(", ") + (c.categories.length > 5 ? ", …" : ""), c.note,
  ]);
  fill(get("columns"), ["name", "kind", "low", "typical", "high", "values", "note"], rows);
}

function showCurl() {
  const body = JSON.stringify({ rows: [state.row], ...(state.coverage === null ? {} : { coverage: [state.coverage] }) });
  const token = sessionStorage.length ? " \\\n  -H \"Authorization: Bearer $CALIPERS_TOKEN\"" : "";
  get("curl").textContent = `curl ${location.origin}${path()}${token} \\\n  -H 'Content-Type: application/json' \\\n  -d '${body.replaceAll("'", "'\\''")}'`;
}

function listen() {
  get("coverage").addEventListener("input", (event) => setCoverage(event.target.valueAsNumber));
  get("coverage-value").addEventListener("input", (event) => setCoverage(event.target.valueAsNumber / 100, true));
  get("members").addEventListener("change", () => state.answer && showAnswer());
  get("reset").addEventListener("click", reset);
  get("sweep-input").addEventListener("change", () => sweeping.run(askSweep));
  get("sweep").addEventListener("pointerdown", drag);
  get("sweep").addEventListener("pointermove", drag);
  get("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const { box } of controls.values()) box.hidden = !box.dataset.name.toLowerCase().includes(wanted);
  });
  get("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(get("curl").textContent);
      get("copied").textContent = "copied";
    } catch {
      getSelection().selectAllChildren(get("curl")); // where a page may not write, a person can
    }
  });
  new IntersectionObserver(([entry]) => get("mini").classList.toggle("away", entry.isIntersecting), { rootMargin: "-90px 0px 0px" }).observe(get("answer"));
  new ResizeObserver(() => state.answer && showAnswer()).observe(get("density"));
}

const scorer = new Scorer(() => ({
  model: state.model.name,
  coverage: state.model.any_coverage ? state.coverage : null,
  limits: state.limits,
}));
listen();
guarded(start);
