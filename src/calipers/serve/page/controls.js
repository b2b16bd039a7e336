// A control for each input: a field that takes any value, and a slider over what training saw.

const DAY = 86_400_000;

export const days = (iso) => Date.parse(`${iso.slice(0, 10)}T00:00:00Z`) / DAY;
export const isoDay = (day) => new Date(Math.round(day) * DAY).toISOString().slice(0, 10);

export function typical(column) {
  if (column.kind === "category") return column.categories[0] ?? null;
  if (column.kind === "boolean") return Boolean(column.typical);
  if (column.kind === "date") return String(column.typical).slice(0, 10);
  return column.typical;
}

export function stepOf(column) {
  const span = column.high - column.low;
  const whole = [column.low, column.high, column.typical].every(Number.isInteger);
  const fine = 10 ** Math.floor(Math.log10((span || 1) / 100));
  return whole ? Math.max(1, fine) : fine;
}

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// Builds the control of a column. `changed(value)` is called with what a person has chosen, null
// for a missing value. The result has `set(value)` and `mark(unseen)`.
export function control(column, number, changed) {
  const id = `input-${number}`;
  const box = element("div", { className: "control" });
  box.dataset.name = column.name;
  const label = element("label", { htmlFor: id, textContent: column.name });
  const row = element("div", { className: "row" }, label);
  const note = element("p", { className: "note", id: `${id}-note` });
  const makers = { number: numberField, date: dateField, boolean: booleanField, category: categoryField };
  const field = (makers[column.kind] ?? categoryField)(column, id, choose, box);
  field.main.setAttribute("aria-describedby", note.id);
  let gone = null;
  if (column.missing && (column.kind === "number" || column.kind === "date")) {
    gone = element("input", { type: "checkbox" });
    gone.setAttribute("aria-label", `${column.name} is missing`);
    gone.addEventListener("change", () => choose(gone.checked ? null : field.read() ?? typical(column)));
    row.append(element("label", { className: "gone" }, gone, "missing"));
  }
  row.append(...field.beside);
  box.append(row, ...field.below, note);

  function choose(value) {
    set(value);
    changed(value);
  }
  function set(value) {
    box.classList.remove("wrong");
    if (gone) gone.checked = value === null;
    field.show(value);
  }
  function mark(unseen) {
    box.classList.toggle("unseen", unseen);
    note.textContent = unseen ? `Training saw ${field.range}.` : "";
    note.hidden = !unseen;
  }
  mark(false);
  return { box, set, mark };
}

function slider(column, low, high, step, id, choose) {
  const input = element("input", { type: "range", min: low, max: high, step });
  input.setAttribute("aria-label", `${column.name}, slider`);
  input.addEventListener("input", () => choose(input.valueAsNumber));
  return input;
}

function numberField(column, id, choose, box) {
  const step = stepOf(column);
  const input = element("input", { type: "number", id, step: "any", inputMode: "decimal", autocomplete: "off" });
  // Past its last step a slider stops short of the highest value, so its step divides the range.
  const steps = Math.max(1, Math.round((column.high - column.low) / step));
  const range = slider(column, 0, steps, 1, id, (at) => {
    const value = at === steps ? column.high : column.low + (at / steps) * (column.high - column.low);
    choose(at === 0 || at === steps ? value : Number((Math.round(value / step) * step).toPrecision(12)));
  });
  input.addEventListener("input", () => {
    if (Number.isFinite(input.valueAsNumber)) {
      const typed = input.value;
      choose(input.valueAsNumber);
      input.value = typed; // "1." on the way to "1.5" stays as it is
    } else {
      box.classList.add("wrong");
    }
  });
  input.addEventListener("keydown", (event) => {
    const sign = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!sign) return;
    event.preventDefault();
    const from = Number.isFinite(input.valueAsNumber) ? input.valueAsNumber : column.typical;
    choose(Number((from + sign * step).toPrecision(12)));
  });
  return {
    main: input,
    beside: [input],
    below: column.high > column.low ? [range] : [],
    range: `${column.low.toLocaleString()} to ${column.high.toLocaleString()}`,
    read: () => (Number.isFinite(input.valueAsNumber) ? input.valueAsNumber : null),
    show(value) {
      if (value === null) {
        input.value = "";
        return;
      }
      input.value = Number(value.toPrecision(10));
      range.value = Math.round(((value - column.low) / (column.high - column.low || 1)) * steps);
      range.setAttribute("aria-valuetext", input.value);
    },
  };
}

function dateField(column, id, choose, box) {
  const low = days(column.low), high = days(column.high);
  const input = element("input", { type: "date", id });
  const range = slider(column, low, high, 1, id, (day) => choose(isoDay(day)));
  input.addEventListener("input", () => {
    if (input.value) choose(input.value);
    else box.classList.add("wrong");
  });
  return {
    main: input,
    beside: [input],
    below: [range],
    range: `${String(column.low).slice(0, 10)} to ${String(column.high).slice(0, 10)}`,
    read: () => input.value || null,
    show(value) {
      input.value = value ?? "";
      if (value !== null) range.value = days(value);
      range.setAttribute("aria-valuetext", input.value);
    },
  };
}

function booleanField(column, id, choose) {
  const select = element("select", { id });
  select.append(element("option", { value: "true", textContent: "yes" }));
  select.append(element("option", { value: "false", textContent: "no" }));
  if (column.missing) select.append(element("option", { value: "", textContent: "missing" }));
  select.addEventListener("change", () => choose({ true: true, false: false }[select.value] ?? null));
  return {
    main: select, beside: [select], below: [], range: "yes and no, and no missing values",
    read: () => select.value,
    show(value) { select.value = value === null ? "" : String(value); },
  };
}

const OTHER = "\u0000other";

function categoryField(column, id, choose) {
  const select = element("select", { id });
  for (const name of column.categories) select.append(element("option", { value: name, textContent: name }));
  if (column.missing) select.append(element("option", { value: "", textContent: "(missing)" }));
  select.append(element("option", { value: OTHER, textContent: "another …" }));
  const text = element("input", { type: "text", hidden: true, placeholder: "another value" });
  text.setAttribute("aria-label", `${column.name}, another value`);
  select.addEventListener("change", () => {
    if (select.value === OTHER) {
      text.hidden = false;
      text.focus();
      if (text.value) choose(text.value);
    } else {
      choose(select.value === "" ? null : select.value);
    }
  });
  text.addEventListener("input", () => text.value.trim() && choose(text.value));
  const known = column.categories.length > 6 ? `${column.categories.length} other values` : column.categories.join(", ");
  return {
    main: select, beside: [select], below: [text], range: known || "no values",
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
