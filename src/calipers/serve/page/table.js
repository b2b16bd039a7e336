// A table dropped on the page: sent unchanged, scored, previewed, and offered for download.

import { call, Refusal } from "./api.js";

const ARROW = "application/vnd.apache.arrow.";
const SHOWN = 8;

export class Scorer {
  #url = null;

  // `selection()` returns the model's name, the coverage or null, and the limits.
  constructor(selection) {
    this.selection = selection;
    this.drop = document.getElementById("drop");
    this.input = document.getElementById("file");
    this.state = document.getElementById("table-state");
    this.result = document.getElementById("table-result");
    this.input.addEventListener("change", () => this.input.files[0] && this.score(this.input.files[0]));
    for (const name of ["dragover", "dragleave", "drop"]) {
      document.addEventListener(name, (event) => {
        event.preventDefault(); // a file dropped next to the field must not replace the page
        this.drop.classList.toggle("over", name === "dragover");
        const file = name === "drop" ? event.dataTransfer?.files[0] : null;
        if (file) this.score(file);
      });
    }
  }

  clear() {
    if (this.#url) URL.revokeObjectURL(this.#url);
    this.#url = null;
    this.result.hidden = true;
    this.showStatus("");
    this.input.value = "";
  }

  showStatus(text, bad = false) {
    this.state.textContent = text;
    this.state.classList.toggle("bad", bad);
  }

  async score(file) {
    const { model, coverage, limits } = this.selection();
    this.clear();
    if (file.size > limits.bytes) {
      this.showStatus(`${file.name} is larger than the ${(limits.bytes / 2 ** 20).toFixed(0)} MiB that the server accepts; use calipers predict instead.`, true);
      return;
    }
    this.showStatus(`Scoring ${file.name} …`);
    try {
      const query = new URLSearchParams({ keep: "true", record: "false" });
      if (coverage !== null) query.set("coverage", coverage);
      const response = await call(`/v1/models/${encodeURIComponent(model)}/predict?${query}`, {
        method: "POST",
        headers: { "Content-Type": await kindOf(file), Accept: "text/csv" },
        body: file,
      });
      this.show(file, await response.text());
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.showStatus(`${file.name}: ${error.message}`, true);
    }
  }

  show(file, text) {
    const rows = parse(text);
    const header = rows[0], body = rows.slice(1);
    const unseen = body.filter((row) => row[header.length - 1]).length;
    const part = unseen ? `, ${unseen.toLocaleString()} of them with values outside the training range` : "";
    this.showStatus(`${body.length.toLocaleString()} rows scored${part}.`);
    const name = `${file.name.replace(/\.[^.]*$/, "")}-scored.csv`;
    this.#url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const link = document.getElementById("download");
    Object.assign(link, { href: this.#url, download: name, textContent: `Download ${name}` });
    const first = header.lastIndexOf("prediction") < 0 ? header.length : header.lastIndexOf("prediction");
    fill(document.getElementById("preview"), header, body.slice(0, SHOWN), first);
    this.result.hidden = false;
  }
}

async function kindOf(file) {
  const head = new Uint8Array(await file.slice(0, 6).arrayBuffer());
  const text = String.fromCharCode(...head);
  if (text === "ARROW1") return `${ARROW}file`;
  if (head.length >= 4 && head.slice(0, 4).every((byte) => byte === 255)) return `${ARROW}stream`;
  return "text/csv";
}

function parse(text) {
  const rows = [[]];
  const cell = /(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r?\n|$)/y;
  while (cell.lastIndex < text.length) {
    const [, quoted, bare, end] = cell.exec(text);
    rows.at(-1).push(quoted === undefined ? bare : quoted.replaceAll('""', '"'));
    if (end !== "," && cell.lastIndex < text.length) rows.push([]);
  }
  return rows;
}

// Fills a table with rows. Columns from `first` on are new and come first, for narrow screens.
export function fill(table, header, rows, first = header.length) {
  const order = [...header.keys()].sort((a, b) => (b >= first) - (a >= first) || a - b);
  const line = (cells, tag) => {
    const row = document.createElement("tr");
    for (const i of order) {
      const node = document.createElement(tag);
      const value = cells[i] ?? "";
      const numeric = rows.every((r) => r[i] === "" || !Number.isNaN(Number(r[i])));
      node.textContent = tag === "td" && numeric && value !== "" ? Number(Number(value).toPrecision(6)).toString() : value;
      node.classList.toggle("number", numeric);
      node.classList.toggle("new", i >= first);
      row.append(node);
    }
    return row;
  };
  table.replaceChildren(line(header, "th"), ...rows.map((row) => line(row, "td")));
}
