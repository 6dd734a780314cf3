// Server-sent events, read from the body of a response.

/** @typedef {{ type: string, data: string, id: string | null }} Message */

/** Most characters of one message; a longer one ends the stream. */
const MOST = 4_000_000;

/** Makes messages of text that arrives in any pieces. */
export class Parser {
  constructor() {
    this.rest = "";
    this.reset();
  }

  reset() {
    this.type = "";
    /** @type {string[]} */
    this.data = [];
    /** @type {string | null} */
    this.id = null;
  }

  /**
   * Return the messages that `text` completes.
   * @param {string} text
   * @returns {Message[]}
   */
  push(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    if (this.rest.length > MOST) throw new Error("a message is too long");
    return lines.flatMap((line) => this.line(line));
  }

  /**
   * @param {string} line
   * @returns {Message[]}
   */
  line(line) {
    if (line === "") {
      const message = { type: this.type || "message", data: this.data.join("\n"), id: this.id };
      const isEmpty = this.data.length === 0 && !this.type;
      this.reset();
      return isEmpty ? [] : [message];
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.type = value;
    else if (field === "data") this.data.push(value);
    else if (field === "id") this.id = value;
    return [];
  }
}

/**
 * Yield the messages of a response's body; `null` stands for a sign of life.
 * @param {Response} response
 * @returns {AsyncGenerator<Message | null>}
 */
export async function* messages(response) {
  const parser = new Parser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield null;
      yield* parser.push(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
