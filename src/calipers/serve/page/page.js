// The page: one model, one row of inputs, and its prediction.

import { Latest, Refusal, call, post } from "./api.js";
import { formatter, hintAtScrolling, percent } from "./charts.js";
import { control, typical } from "./controls.js";
import { drawDensity, drawSweep } from "./plots.js";
import { covers, partShown, placed, sweepValues, valueAt } from "./sweep.js";
import { Scorer, fill } from "./table.js";

const POINTS = 241; // of a density

const get = (id) => document.getElementById(id);
const state = { models: [], limits: null, model: null, row: {}, coverage: null, prediction: null, sweep: null };
const empty = new Set(); // inputs that have no value yet
const controls = new Map();
const predicting = new Latest(showBusy);
const sweeping = new Latest(showBusy);

function showBusy() {
  get("busy").classList.toggle("on", predicting.busy || sweeping.busy);
}

async function start() {
  const { models, limits } = await (await call("/v1/models")).json();
  Object.assign(state, { models, limits });
  const choice = get("model");
  choice.replaceChildren(...models.map(({ name }) => new Option(name, name)));
  get("chooser").hidden = models.length < 2;
  get("model-name").textContent = models.length < 2 ? models[0].name : "";
  choice.addEventListener("change", () => choose(choice.value));
  window.addEventListener("hashchange", chooseFromHash);
  get("main").hidden = false;
  chooseFromHash();
}

// Chooses the model that the URL names, the first one by default.
function chooseFromHash() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const { name } = state.models.find((one) => one.name === wanted) ?? state.models[0];
  get("model").value = name;
  choose(name);
}

function choose(name) {
  predicting.cancel();
  sweeping.cancel();
  const model = state.models.find((one) => one.name === name);
  const inputs = model.inputs.filter((column) => column.used);
  Object.assign(state, { model, inputs, prediction: null, sweep: null, domain: null, coverage: model.coverage });
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  document.title = `${name} · calipers`;
  get("target").textContent = model.target.name;
  get("coverage-row").hidden = model.coverage === null;
  for (const id of ["coverage", "coverage-value"]) get(id).disabled = !model.any_coverage;
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
    const made = control(column, number, (value) => change(column.name, value));
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
  empty.clear();
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
  const valid = value > 0 && value < 1;
  get("coverage-value").classList.toggle("wrong", !valid);
  if (!valid) return;
  const shown = get("coverage-value").value;
  state.coverage = value;
  showCoverage();
  if (typed) get("coverage-value").value = shown;
  update();
}

// Takes the user's choice; undefined if a field is empty.
function change(name, value) {
  if (value === undefined) empty.add(name);
  else {
    empty.delete(name);
    state.row[name] = value;
  }
  update(name);
}

// While a field is empty, the prediction shown belongs to an earlier choice and must not look
// current.
function showLacking() {
  const names = [...empty].join(", ");
  const text = `${names} ${empty.size > 1 ? "have" : "has"} no value.`;
  get("main").classList.toggle("stale", empty.size > 0);
  get("mini").classList.toggle("stale", empty.size > 0);
  get("empty").hidden = empty.size === 0;
  get("empty").textContent = empty.size ? `${text} The prediction shown is an earlier one.` : "";
  if (empty.size) get("mini-interval").textContent = text;
}

// Requests what depends on the changed input: a sweep along an input changes with it only if its
// value is outside the range of the chart.
function update(changed = null) {
  showLacking();
  if (empty.size) {
    predicting.cancel();
    sweeping.cancel();
    state.sweep = null; // the cancelled request is made again later
    return;
  }
  predicting.run(fetchPrediction);
  const isSwept = changed !== null && changed === get("sweep-input").value;
  if (!isSwept || !state.sweep || !covers(state.sweep, state.row[changed])) sweeping.run(fetchSweep);
  showCurl();
}

const path = () => `/v1/models/${encodeURIComponent(state.model.name)}/predict`;

function requestBody(rows, more = {}) {
  const coverage = state.coverage === null ? {} : { coverage: [state.coverage] };
  return { rows, ...coverage, record: false, ...more };
}

async function guarded(work) {
  try {
    await work();
    get("error").hidden = true;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    get("error").textContent = error.message;
    get("error").hidden = false;
  }
}

const fetchPrediction = (signal) =>
  guarded(async () => {
    const more = state.model.any_coverage ? { members: true, density: POINTS } : {};
    const { predictions, infinite_reason: infiniteReason } = await post(path(), requestBody([state.row], more), signal);
    Object.assign(state, { prediction: predictions[0], infiniteReason });
    showPrediction();
  });

const fetchSweep = (signal) =>
  guarded(async () => {
    const column = state.inputs.find(({ name }) => name === get("sweep-input").value);
    const values = sweepValues(column, state.row[column.name], get("sweep").clientWidth);
    const rows = values.map((value) => ({ ...state.row, [column.name]: value }));
    const { predictions } = await post(path(), requestBody(rows), signal);
    state.sweep = { column, values, predictions };
    showSweep();
  });

function showPrediction() {
  const { prediction, model } = state;
  const show = formatter(model.target.low, model.target.high);
  get("point").textContent = show(prediction.point);
  const interval = prediction.intervals[0];
  const line = get("interval");
  line.replaceChildren();
  const bounded = interval && interval.lower !== null && interval.upper !== null;
  if (interval) {
    const bounds = document.createElement("strong");
    bounds.textContent = bounded ? `${show(interval.lower)} to ${show(interval.upper)}` : "unbounded";
    line.append(`${percent(interval.coverage, 2)} interval: `, bounds);
  }
  const reason = state.infiniteReason ?? "";
  get("unbounded").hidden = !reason;
  get("unbounded").textContent = reason && `${reason[0].toUpperCase()}${reason.slice(1)}.`;
  get("mini-point").textContent = `${model.target.name} ${get("point").textContent}`;
  get("mini-interval").textContent = !interval ? "" : bounded ? line.lastChild.textContent : "no finite interval";
  const names = prediction.outside;
  get("mini").classList.toggle("unseen", names.length > 0);
  for (const column of state.inputs) controls.get(column.name).mark(names.includes(column.name));
  const shown = names.slice(0, 4).join(", ") + (names.length > 4 ? ` and ${names.length - 4} more` : "");
  get("outside").hidden = names.length === 0;
  get("outside").textContent = names.length
    ? `${shown} ${names.length > 1 ? "are" : "is"} outside the training range. Trust this prediction less; its interval may be too narrow.`
    : "";
  state.domain = drawDensity(get("density"), prediction, model.target, get("members").checked ? model.members : 0, state.domain);
  showKey(prediction, model);
  if (state.sweep) showSweep();
}

// The legend of the chart, which shows a density, probabilities of single values, or only bounds.
function showKey(prediction, model) {
  const discrete = Boolean(prediction.atoms) && !prediction.density?.y.some((value) => value > 0);
  const kind = discrete ? "probability of each value" : "predictive density, smoothed";
  get("density-key").textContent = model.any_coverage ? `${kind}; interval shaded, its ends dashed` : "interval, its ends dashed";
  get("members-label").hidden = !model.any_coverage || discrete; // networks are continuous
}

function showSweep() {
  const { column, predictions } = state.sweep;
  const { prediction, model } = state;
  if (!prediction || !predictions.length) return;
  const sweep = { predictions, point: prediction.point, ...placed(state.sweep, state.row[column.name]) };
  const label = `${model.target.name} along ${column.name}, with the other inputs as chosen.`;
  get("sweep-here").hidden = !isFinite(sweep.place) || Boolean(sweep.names);
  get("sweep-part").textContent = partShown(state.sweep);
  state.placeAt = drawSweep(get("sweep"), sweep, model.target, label);
}

// Dragging along the chart moves the input.
function drag(event) {
  if (!state.sweep || empty.size || (event.type === "pointermove" && !event.buttons)) return;
  const { name } = state.sweep.column;
  const value = valueAt(state.sweep, state.placeAt(event));
  controls.get(name).set(value);
  change(name, value);
}

function describe(model) {
  const about = model.about ?? {};
  const entries = [
    ["Predicts", model.target.name],
    ["In training", [model.target.low, model.target.high].map(formatter(model.target.low, model.target.high)).join(" to ")],
    ["Coverage", model.coverage === null ? null : percent(model.coverage, 2)],
    ["Networks", model.members],
    ["Rows", about.rows?.toLocaleString()],
    ["Fitted", about.fitted_at?.slice(0, 16).replace("T", " ")],
    ["Held-out rows inside", about.evaluation ? `${percent(about.evaluation.coverage_rate)} of ${about.evaluation.rows.toLocaleString()}` : null],
    ["Prediction error (RMSE)", about.evaluation ? formatter(0, about.evaluation.rmse)(about.evaluation.rmse) : null],
    ["Adapted to labels", model.adapted ? "yes" : null],
    ["calipers", about.versions?.calipers],
  ];
  get("drift").hidden = !model.alarm;
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
  get("coverage-value").addEventListener("blur", () => {
    get("coverage-value").classList.remove("wrong");
    showCoverage();
  });
  get("members").addEventListener("change", () => state.prediction && showPrediction());
  get("reset").addEventListener("click", reset);
  get("sweep-input").addEventListener("change", () => sweeping.run(fetchSweep));
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
      getSelection().selectAllChildren(get("curl")); // the user can copy if the page may not
    }
  });
  new IntersectionObserver(([entry]) => get("mini").classList.toggle("away", entry.isIntersecting), { rootMargin: "-90px 0px 0px" }).observe(get("answer"));
  new ResizeObserver(() => state.prediction && showPrediction()).observe(get("density"));
}

const scorer = new Scorer(() => ({
  model: state.model.name,
  coverage: state.model.any_coverage ? state.coverage : null,
  limits: state.limits,
}));
listen();
hintAtScrolling();
guarded(start);
