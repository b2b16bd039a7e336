// Requests to the server that this page came from, and only to it.

const KEY = "calipers-token";
let asking = null;

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function call(path, options = {}) {
  for (;;) {
    const headers = { ...options.headers };
    const token = sessionStorage.getItem(KEY);
    if (token) headers.Authorization = `Bearer ${token}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal(0, "The server does not respond.");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      await askForToken(token !== null);
      continue;
    }
    const problem = await response.json().catch(() => ({}));
    throw new Refusal(response.status, problem.detail || `The server responded with status ${response.status}.`);
  }
}

export async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const response = await call(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  return response.json();
}

// Several requests may need a token at the same time; the user is asked once.
function askForToken(wrong) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("ask-token");
    const field = document.getElementById("token");
    document.getElementById("token-wrong").hidden = !wrong;
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    document.getElementById("token-form").onsubmit = () => {
      sessionStorage.setItem(KEY, field.value.trim());
      field.value = "";
      asking = null;
      resolve();
    };
    dialog.showModal();
  });
  return asking;
}

// Runs one request at a time. Of the requests made meanwhile, only the last is run: the page updates
// as fast as the server responds, and never shows an old response after a new one.
export class Latest {
  #running = false;
  #next = null;
  #abort = null;
  #timer = null;
  #changed;

  // `changed()` is called when work begins and when it ends.
  constructor(changed) {
    this.#changed = changed;
  }

  get busy() {
    return this.#running || this.#next !== null;
  }

  run(work) {
    this.#next = work;
    this.#changed();
    if (!this.#running && this.#timer === null) {
      this.#timer = setTimeout(() => this.#go(), 15);
    }
  }

  cancel() {
    this.#next = null;
    this.#abort?.abort();
    this.#changed();
  }

  async #go() {
    this.#timer = null;
    if (this.#running || !this.#next) return;
    const work = this.#next;
    this.#next = null;
    this.#running = true;
    this.#abort = new AbortController();
    try {
      await work(this.#abort.signal);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    } finally {
      this.#running = false;
      this.#changed();
      if (this.#next) this.#go();
    }
  }
}
