// The live connection: events of the cluster over `/api/v1/watch`, again after each failure.
// Rule: one connection, a wait with jitter after each failure, and no message is read twice.

import { ApiError, headers, path, send } from "./api.js";
import { messages } from "./sse.js";

const FIRST_WAIT_MS = 400;
const MOST_WAIT_MS = 15_000;
// The master sends a sign of life every 10 s.
const SILENCE_MS = 25_000;
// A page that is hidden for this long closes its stream.
const HIDDEN_MS = 60_000;

/**
 * @typedef {{ state: "connecting" | "live" | "reconnecting" | "follower" | "signed-out" | "paused", leader?: string, message?: string, unreachable?: boolean }} Status
 * @typedef {{ status: (status: Status) => void, message: (type: string, data: any) => void }} Listener
 */

export class Live {
  /** @param {Listener} listener */
  constructor(listener) {
    this.listener = listener;
    this.lastId = "";
    this.failures = 0;
    /** @type {AbortController | null} */
    this.stopping = null;
    /** @type {(() => void) | null} */
    this.wake = null;
    document.addEventListener("visibilitychange", () => this.#looked());
    window.addEventListener("online", () => this.retry());
  }

  start() {
    if (this.stopping) return;
    this.stopping = new AbortController();
    this.#run(this.stopping);
  }

  stop() {
    this.stopping?.abort();
    this.stopping = null;
    this.wake?.();
  }

  /** Connect now, if it waits. */
  retry() {
    this.wake?.();
  }

  /** @param {AbortController} stopping */
  async #run(stopping) {
    this.listener.status({ state: "connecting" });
    while (!stopping.signal.aborted) {
      try {
        await this.#read(stopping);
        throw new ApiError(0, "ended", "The stream of the master ended.");
      } catch (error) {
        if (stopping.signal.aborted) return;
        if (!this.#report(error)) return;
      }
      await this.#pause();
    }
  }

  /** Report an error to the listener; return whether to try again. */
  #report(error) {
    this.failures += 1;
    if (error instanceof ApiError && error.status === 401) {
      this.stop();
      this.listener.status({ state: "signed-out", message: error.message });
      return false;
    }
    if (error instanceof ApiError && error.status === 503 && error.leader) {
      this.listener.status({ state: "follower", leader: error.leader, message: error.message });
    } else {
      const message = error instanceof Error ? error.message : String(error);
      this.listener.status({ state: "reconnecting", message, unreachable: error instanceof ApiError && error.code === "unreachable" });
    }
    return true;
  }

  /** @param {AbortController} stopping */
  async #read(stopping) {
    const attempt = new AbortController();
    const signal = AbortSignal.any([attempt.signal, stopping.signal]);
    let alarm = setTimeout(() => attempt.abort(), SILENCE_MS);
    try {
      const more = this.lastId ? { "Last-Event-ID": this.lastId } : {};
      const options = { headers: headers({ Accept: "text/event-stream", ...more }), cache: "no-store" };
      const response = await send(path(["watch"]), /** @type {RequestInit} */ (options), signal, 0);
      this.failures = 0;
      this.listener.status({ state: "live" });
      for await (const message of messages(response)) {
        clearTimeout(alarm);
        alarm = setTimeout(() => attempt.abort(), SILENCE_MS);
        if (message) this.#deliver(message);
      }
    } finally {
      clearTimeout(alarm);
      attempt.abort();
    }
  }

  /** @param {import("./sse.js").Message} message */
  #deliver(message) {
    if (message.id) this.lastId = message.id;
    let data = null;
    try {
      data = message.data ? JSON.parse(message.data) : null;
    } catch {
      return;
    }
    if (message.type === "reset" && data?.last_id) this.lastId = data.last_id;
    if (message.type === "end") {
      const error = data?.error ?? {};
      throw new ApiError(503, error.code ?? "", error.message ?? "The master ended the stream.", error.leader_http ?? "");
    }
    this.listener.message(message.type, data);
  }

  async #pause() {
    const most = Math.min(MOST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.failures - 1, 8));
    // Half to all of it, so that the pages of one failed master do not return at once.
    const wait = most / 2 + Math.random() * most / 2;
    await new Promise((resolve) => {
      const alarm = setTimeout(resolve, wait);
      this.wake = () => {
        clearTimeout(alarm);
        resolve(undefined);
      };
    });
    this.wake = null;
  }

  #looked() {
    clearTimeout(this.hiding);
    if (!document.hidden) {
      if (this.paused) {
        this.paused = false;
        this.start();
      }
      this.retry();
    } else if (this.stopping) {
      this.hiding = setTimeout(() => {
        if (!this.stopping) return;
        this.paused = true;
        this.stop();
        this.listener.status({ state: "paused" });
      }, HIDDEN_MS);
    }
  }
}
