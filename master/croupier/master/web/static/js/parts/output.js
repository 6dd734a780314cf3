// Output of a task: its tail, and what follows. Rule: the page holds a bounded end of it, whatever
// its size, and shows it as text without escape sequences.

import { ApiError, headers, path, send } from "../api.js";
import { button, h, replace } from "../dom.js";
import { token } from "../session.js";
import { plainOutput, size } from "../text.js";

const TAIL_BYTES = 64 * 1024;
const MOST_LINES = 2000;
const MOST_CHARACTERS = 400_000;
const WAIT_MS = 2000;

export class Output {
  /**
   * @param {string} framework
   * @param {string} task
   * @param {boolean} isLive whether more may come
   * @param {boolean} isFailure shows stderr first, unless there is none
   */
  constructor(framework, task, isLive, isFailure) {
    this.parts = ["tasks", framework, task, "output"];
    this.stream = isFailure ? "stderr" : "stdout";
    this.isGuess = isFailure;
    this.follows = isLive;
    this.text = h("pre", { tabindex: "0", "aria-label": "Output of the task" });
    this.note = h("p", { class: "faint", role: "status" });
    this.tabs = ["stdout", "stderr"].map((name) => button(name, () => { this.isGuess = false; this.#show(name); }, { "aria-pressed": String(name === this.stream) }));
    this.follow = h("input", { type: "checkbox", checked: this.follows, onchange: () => this.#setFollow() });
    this.wrap = h("input", { type: "checkbox", checked: true, onchange: () => this.text.classList.toggle("wrap", this.wrap.checked) });
    this.text.classList.add("wrap");
    this.root = h("div", { class: "output" },
      h("div", { class: "filters" }, h("span", { class: "tabs", role: "group", "aria-label": "Stream" }, this.tabs),
        h("label", { class: "check" }, this.follow, "follow"), h("label", { class: "check" }, this.wrap, "wrap lines"),
        button("Download", () => this.#download()), this.note),
      this.text);
  }

  stop() {
    this.reading?.abort();
  }

  start() {
    this.#show(this.stream);
  }

  #show(name) {
    this.stream = name;
    this.tabs.forEach((tab) => tab.setAttribute("aria-pressed", String(tab.textContent === name)));
    this.stop();
    this.kept = "";
    this.offset = 0;
    this.begun = false;
    replace(this.text);
    const reading = (this.reading = new AbortController());
    this.#read(reading.signal).catch((error) => {
      if (!reading.signal.aborted) replace(this.note, error.message);
    });
  }

  #setFollow() {
    this.follows = this.follow.checked;
    if (this.follows) this.#show(this.stream);
    else this.stop();
  }

  /** Read the tail, and what follows it. @param {AbortSignal} signal */
  async #read(signal) {
    let place = { tail_bytes: TAIL_BYTES };
    replace(this.note, "");
    for (;;) {
      try {
        await this.#part(place, signal);
        return;
      } catch (error) {
        const isFinal = error instanceof ApiError && [400, 401, 403, 404].includes(error.status);
        if (signal.aborted || isFinal || !this.follows) throw error;
        replace(this.note, `${error.message} Trying again.`);
      }
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
      if (signal.aborted) return;
      if (this.begun) place = { offset: this.offset };
    }
  }

  /** Read from a place on, to the end of the task if it follows. */
  async #part(place, signal) {
    const url = path([...this.parts, this.stream], { ...place, follow: this.follows ? "true" : "" });
    const response = await send(url, { headers: headers(), cache: "no-store" }, signal, 0);
    this.begun = true;
    this.offset = Number(response.headers.get("Croupier-Offset") ?? 0);
    const whole = Number(response.headers.get("Croupier-Size") ?? 0);
    replace(this.note, this.offset && !this.kept ? `the last ${size(whole - this.offset)} of ${size(whole)}` : "");
    await this.#take(response);
    if (!this.kept && this.isGuess) {
      this.isGuess = false;
      this.#show("stdout");
      return;
    }
    if (!this.kept) replace(this.note, this.follows ? "It ended without output here." : "There is no output here.");
  }

  /** Append the body as it comes. */
  async #take(response) {
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        this.offset += value.length;
        this.#append(decoder.decode(value, { stream: true }));
      }
      this.#append(decoder.decode());
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  #append(text) {
    if (!text) return;
    this.kept = (this.kept + text).slice(-MOST_CHARACTERS);
    if (this.drawing) return;
    // Once for each frame, however fast output comes.
    this.drawing = requestAnimationFrame(() => {
      this.drawing = 0;
      const lines = plainOutput(this.kept).split("\n");
      if (lines.length > MOST_LINES) {
        this.kept = this.kept.split("\n").slice(-MOST_LINES).join("\n");
        lines.splice(0, lines.length - MOST_LINES);
      }
      const isAtEnd = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 40;
      this.text.textContent = lines.join("\n");
      if (isAtEnd || !this.drawn) this.text.scrollTop = this.text.scrollHeight;
      this.drawn = true;
    });
  }

  /** Let the browser write the whole file; the token goes in a header, never in an address. */
  async #download() {
    await download([...this.parts, this.stream], {}, `${this.parts[2]}.${this.stream}`, this.note);
  }
}

const MOST_DOWNLOAD = 512 * 2 ** 20;

/**
 * Save a file. @param {string[]} parts @param {Record<string, any>} query @param {string} name @param {HTMLElement} note
 */
export async function download(parts, query, name, note) {
  const save = (/** @type {string} */ address) => h("a", { href: address, download: name.replace(/[^\w.-]+/g, "_") }).click();
  // Without a token the browser can fetch it itself, to the disk, of any size.
  if (!token()) {
    save(path(parts, query));
    return;
  }
  try {
    const response = await send(path(parts, query), { headers: headers(), cache: "no-store" }, undefined, 0);
    const length = Number(response.headers.get("Content-Length") ?? 0);
    if (length > MOST_DOWNLOAD) {
      response.body.cancel().catch(() => {});
      throw new Error(`${size(length)} is too much for a browser: croupier logs ${parts[2]} > FILE`);
    }
    const address = URL.createObjectURL(await response.blob());
    save(address);
    setTimeout(() => URL.revokeObjectURL(address), 30_000);
  } catch (error) {
    replace(note, error.message);
  }
}
