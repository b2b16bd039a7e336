// A control for each input: a field that takes any value, and a slider over the training range.

import { clamp } from "./charts.js";
import { atTimeOf, days, hasHours, isoDay, isoMinute, write } from "./dates.js";

const PLACES = 200; // steps of a slider for numbers
const LISTED = 30; // categories in a list; with more, the user types
const DAYS = 60; // span from which a slider of times moves by days

const round = (value, unit) => Number((Math.round(value / unit) * unit).toPrecision(12));
const isWhole = (column) => [column.low, column.high, column.typical].every(Number.isInteger);

export function stepOf(column) {
  const fine = 10 ** Math.floor(Math.log10((column.high - column.low || 1) / 100));
  return isWhole(column) ? Math.max(1, fine) : fine;
}

export function typical(column) {
  if (column.kind === "category" || column.kind === "text") return column.categories[0] ?? null;
  if (column.kind === "boolean") return Boolean(column.typical);
  if (column.kind === "date") return write(column, days(column.typical));
  const { low, high, typical: median } = column;
  const near = Math.min(median - low, high - median) || high - low || 1;
  const unit = isWhole(column) ? 1 : 10 ** Math.floor(Math.log10(near / 1000));
  return clamp(round(median, unit), low, high);
}

// Maps between values and positions of a slider, 0 to 1. The model keeps three quantiles of an
// input: a power curve through the smallest, median and largest value spreads skewed inputs.
export function bend({ low, high, typical: median }) {
  const span = high - low || 1;
  const middle = clamp((median - low) / span, 0.002, 0.998);
  const flip = (fraction) => (middle > 0.5 ? 1 - fraction : fraction);
  const power = Math.log(flip(middle)) / Math.log(0.5);
  return {
    value: (place) => low + span * flip(flip(clamp(place, 0, 1)) ** power),
    place: (value) => flip(flip(clamp((value - low) / span, 0, 1)) ** (1 / power)),
  };
}

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// Builds the control of a column. `changed(value)` is called with the user's choice: null is a
// missing value, undefined an empty field. The result has `set` and `mark`.
export function control(column, number, changed) {
  const id = `input-${number}`;
  const box = element("div", { className: "control" });
  box.dataset.name = column.name;
  const label = element("label", { htmlFor: id, textContent: column.name });
  const row = element("div", { className: "row" }, label);
  const note = element("p", { className: "note", id: `${id}-note` });
  const makers = { number: numberField, date: dateField, boolean: booleanField };
  const typed = column.kind === "text" || column.categories.length > LISTED;
  const listed = typed ? searchField : categoryField;
  const field = (makers[column.kind] ?? listed)(column, id, choose, lack);
  field.main.setAttribute("aria-describedby", note.id);
  let missing = null;
  if (column.missing && field.main.tagName !== "SELECT") {
    missing = element("input", { type: "checkbox" });
    missing.setAttribute("aria-label", `${column.name} is missing`);
    missing.addEventListener("change", () => choose(missing.checked ? null : field.read() ?? typical(column)));
    row.append(element("label", { className: "gone" }, missing, "missing"));
  }
  row.append(...field.beside);
  box.append(row, ...field.below, note);

  function choose(value) {
    set(value);
    changed(value);
  }
  function set(value) {
    if (box.classList.contains("wrong")) {
      box.classList.remove("wrong");
      mark(false);
    }
    if (missing) missing.checked = value === null;
    field.show(value);
  }
  function lack(what) {
    box.classList.remove("unseen");
    box.classList.add("wrong");
    note.textContent = `Enter ${what}${missing ? ", or tick missing" : ""}.`;
    note.hidden = false;
    changed(undefined);
  }
  function mark(unseen) {
    if (box.classList.contains("wrong")) return;
    box.classList.toggle("unseen", unseen);
    note.textContent = unseen ? `In training: ${field.range}.` : "";
    note.hidden = !unseen;
  }
  mark(false);
  return { box, set, mark };
}

function slider(column, low, high, choose) {
  const input = element("input", { type: "range", min: low, max: high, step: 1 });
  input.setAttribute("aria-label", `${column.name}, slider`);
  input.addEventListener("input", () => choose(input.valueAsNumber));
  return input;
}

function numberField(column, id, choose, lack) {
  const { low, high } = column;
  const way = bend(column);
  const input = element("input", { type: "number", id, step: "any", inputMode: "decimal", autocomplete: "off" });
  // The rounding unit at a position of the slider: the distance between neighbouring positions.
  const unitAt = (place) => {
    const from = clamp(place, 0, 1 - 1 / PLACES);
    const fine = 10 ** Math.floor(Math.log10(way.value(from + 1 / PLACES) - way.value(from) || 1));
    return isWhole(column) ? Math.max(1, fine) : fine;
  };
  const valueAt = (place) =>
    (place <= 0 ? low : place >= 1 ? high : clamp(round(way.value(place), unitAt(place)), low, high));
  const next = (value, sign) => {
    const place = way.place(value);
    const found = valueAt(place + sign / PLACES);
    return sign * (found - value) > 0 ? found : round(value + sign * unitAt(place), unitAt(place));
  };
  const range = slider(column, 0, PLACES, (at) => choose(valueAt(at / PLACES)));
  range.addEventListener("keydown", (event) => {
    const sign = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
    if (!sign) return;
    event.preventDefault();
    choose(clamp(next(read() ?? column.typical, sign), low, high));
  });
  input.addEventListener("input", () => {
    if (read() === null) {
      lack("a number");
      return;
    }
    const typed = input.value;
    choose(read());
    input.value = typed; // keep "1." on the way to "1.5"
  });
  input.addEventListener("keydown", (event) => {
    const sign = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!sign) return;
    event.preventDefault();
    choose(next(read() ?? column.typical, sign));
  });
  const read = () => (Number.isFinite(input.valueAsNumber) ? input.valueAsNumber : null);
  return {
    main: input,
    beside: [input],
    below: high > low ? [range] : [],
    range: `${low.toLocaleString()} to ${high.toLocaleString()}`,
    read,
    show(value) {
      input.value = value === null ? "" : Number(value.toPrecision(10));
      if (value !== null) range.value = Math.round(way.place(value) * PLACES);
      range.setAttribute("aria-valuetext", input.value);
    },
  };
}

function dateField(column, id, choose, lack) {
  const hours = hasHours(column);
  const [low, high] = [column.low, column.high].map(days);
  const input = element("input", { type: hours ? "datetime-local" : "date", id });
  const byDay = !hours || high - low > DAYS;
  const range = byDay
    ? slider(column, Math.floor(low), Math.floor(high), (day) =>
      choose(hours ? atTimeOf(day, input.value || write(column, days(column.typical))) : isoDay(day)))
    : slider(column, 0, Math.ceil(24 * (high - low)), (hour) => choose(isoMinute(Math.min(high, low + hour / 24))));
  input.addEventListener("input", () => (input.value ? choose(input.value) : lack(hours ? "a date and a time" : "a date")));
  return {
    main: input,
    beside: [input],
    below: [range],
    range: [low, high].map((day) => write(column, day).replace("T", " ")).join(" to "),
    read: () => input.value || null,
    show(value) {
      if (input.value !== value) input.value = value ?? "";
      if (value !== null) range.value = byDay ? Math.floor(days(value)) : 24 * (days(value) - low);
      range.setAttribute("aria-valuetext", input.value);
    },
  };
}

function booleanField(column, id, choose) {
  const select = element("select", { id });
  select.append(new Option("yes", "true"), new Option("no", "false"));
  if (column.missing) select.append(new Option("missing", ""));
  select.addEventListener("change", () => choose({ true: true, false: false }[select.value] ?? null));
  return {
    main: select, beside: [select], below: [], range: "yes and no, but no missing values",
    read: () => select.value,
    show(value) { select.value = value === null ? "" : String(value); },
  };
}

const OTHER = "\u0000other";

function categoryField(column, id, choose, lack) {
  const select = element("select", { id });
  select.append(...column.categories.map((name) => new Option(name, name)));
  if (column.missing) select.append(new Option("(missing)", ""));
  select.append(new Option("another …", OTHER));
  const text = element("input", { type: "text", hidden: true, placeholder: "another value" });
  text.setAttribute("aria-label", `${column.name}, another value`);
  const chooseText = () => (text.value.trim() ? choose(text.value) : lack("a value"));
  select.addEventListener("change", () => {
    if (select.value !== OTHER) {
      choose(select.value === "" ? null : select.value);
      return;
    }
    text.hidden = false;
    text.focus();
    chooseText();
  });
  text.addEventListener("input", chooseText);
  return {
    main: select, beside: [select], below: [text],
    range: column.categories.length > 6 ? `${column.categories.length} other values` : column.categories.join(", ") || "no values",
    read: () => select.value,
    show(value) {
      if (value === null) select.value = column.missing ? "" : OTHER;
      else if (column.categories.includes(value)) select.value = value;
      else {
        select.value = OTHER;
        if (text.value !== value) text.value = value;
      }
      text.hidden = select.value !== OTHER;
    },
  };
}

// For too many categories to list: the browser suggests those that match what is typed.
function searchField(column, id, choose, lack) {
  const input = element("input", { type: "text", id, autocomplete: "off" });
  const list = element("datalist", { id: `${id}-list` }, ...column.categories.map((name) => new Option(name)));
  input.setAttribute("list", list.id);
  input.addEventListener("input", () => (input.value.trim() ? choose(input.value) : lack("a value")));
  return {
    main: input, beside: [input], below: [list], range: `${column.categories.length.toLocaleString()} other values`,
    read: () => input.value || null,
    show(value) { if (input.value !== value) input.value = value ?? ""; },
  };
}
