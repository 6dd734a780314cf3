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
   */
  constructor(framework, task, isLive) {
    this.parts = ["tasks", framework, task, "output"];
    this.stream = "stdout";
    this.follows = isLive;
    this.text = h("pre", { tabindex: "0", "aria-label": "Output of the task" });
    this.note = h("p", { class: "faint", role: "status" });
    this.tabs = ["stdout", "stderr"].map((name) => button(name, () => this.#show(name), { "aria-pressed": String(name === this.stream) }));
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

  /** @param {AbortSignal} signal */
  async #read(signal) {
    replace(this.note, "");
    await this.#tail(signal);
    while (this.follows && !signal.aborted) {
      try {
        await this.#following(signal);
      } catch (error) {
        if (signal.aborted || (error instanceof ApiError && error.status === 404)) throw error;
        replace(this.note, "The output is not reachable; trying again.");
      }
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    }
  }

  async #tail(signal) {
    const options = { headers: headers({ Range: `bytes=-${TAIL_BYTES}` }), cache: "no-store" };
    let response;
    try {
      response = await send(path([...this.parts, this.stream]), /** @type {RequestInit} */ (options), signal);
    } catch (error) {
      // An empty file has no range.
      if (error instanceof ApiError && error.status === 416) return;
      throw error;
    }
    const range = /bytes (\d+)-(\d+)\/(\d+)/.exec(response.headers.get("Content-Range") ?? "");
    this.offset = range ? Number(range[1]) : 0;
    await this.#take(response, TAIL_BYTES);
    if (range && Number(range[1]) > 0) replace(this.note, `the last ${size(TAIL_BYTES)} of ${size(Number(range[3]))}`);
  }

  async #following(signal) {
    const url = path([...this.parts, this.stream], { offset: this.offset, follow: 1 });
    const response = await send(url, { headers: headers(), cache: "no-store" }, signal, 0);
    await this.#take(response, Infinity);
  }

  /** Append the body, at most `most` bytes of it. */
  async #take(response, most) {
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    let taken = 0;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        taken += value.length;
        this.offset += value.length;
        this.#append(decoder.decode(value, { stream: true }));
        if (taken >= most) break;
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
