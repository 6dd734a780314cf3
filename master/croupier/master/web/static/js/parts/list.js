// A list of the API, a page of rows at a time, with a search, filters and an order that the address
// keeps. The API has an order of its own; any other is made here, of at most `MOST_SORTED` items.

import { get } from "../api.js";
import { button, h, replace } from "../dom.js";
import { current, setQuery } from "../router.js";
import { nothing } from "../session.js";
import { count } from "../text.js";
import { Table } from "./table.js";

const ROWS = 100;
const MOST_SORTED = 1000;
const TYPING_MS = 250;

/**
 * @typedef {{ name: string, label: string, options: (string | string[])[] }} Filter an option may have a label of its own
 * @typedef {{ what: string, label: string, columns: import("./table.js").Column[], key: (item: any) => string,
 *   empty: string, filters?: Filter[], hidden?: string[], fixed?: Record<string, any>, rows?: number, search?: boolean,
 *   drawn?: (items: any[]) => void }} Options
 */

export class List {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    this.table = new Table(options.label, options.columns, options.key, (name) => this.#sortBy(name));
    this.note = h("p", { class: "empty", hidden: true });
    this.where = h("span", { class: "faint", role: "status" });
    this.back = button("Previous", () => this.#turn(-1), { disabled: true });
    this.forth = button("Next", () => this.#turn(1), { disabled: true });
    /** Tokens of the pages up to this one. @type {string[]} */
    this.tokens = [""];
    this.next = null;
    this.search = options.search === false ? null : this.#searchField();
    this.root = h("div", { class: "paged" }, this.#filters(), this.table.root, this.note,
      h("div", { class: "pager" }, this.back, this.forth, this.where));
    this.again = () => {};
  }

  /** @param {AbortSignal} signal */
  async load(signal) {
    const { what, fixed, rows = ROWS } = this.options;
    this.again = () => this.load(signal).catch((error) => signal.aborted || this.#fail(error));
    const asked = ++this.asked || (this.asked = 1);
    const order = this.#order();
    const place = order ? { limit: MOST_SORTED } : { limit: rows, page: this.tokens.at(-1) };
    const page = await get([what], { ...this.#chosen(), ...fixed, ...place }, signal);
    if (asked !== this.asked) return;
    this.table.mark(order?.name ?? "", order?.isDown ?? false);
    if (!order) {
      this.#draw(page.items, page.next, rows);
      return;
    }
    const from = (this.tokens.length - 1) * rows;
    const items = page.items.sort((one, other) => compare(order.by(one), order.by(other)) * (order.isDown ? -1 : 1));
    this.#draw(items.slice(from, from + rows), items.length > from + rows ? "sorted" : null, rows);
    if (page.next) this.where.append(`; only the first ${count(MOST_SORTED)} are sorted: search or filter for others`);
  }

  /** Return the order that the address has; null: that of the API. */
  #order() {
    const text = current().query.get("sort") ?? "";
    const isDown = text.startsWith("-");
    const found = this.options.columns.find((column) => column.by && column.name === text.slice(Number(isDown)));
    return found?.by ? { name: found.name, by: found.by, isDown } : null;
  }

  /** Sort by a column: upwards, then downwards, then as the API does. @param {string} name */
  #sortBy(name) {
    const now = current().query.get("sort");
    this.#choose("sort", now === name ? `-${name}` : now === `-${name}` ? "" : name);
  }

  #draw(items, next, rows) {
    this.next = next;
    this.table.update(items);
    this.table.root.hidden = items.length === 0;
    const isFiltered = Object.keys(this.#chosen()).length > 0;
    replace(this.note, isFiltered ? "Nothing matches." : nothing(this.options.empty, this.options.what === "agents" ? "agent" : "role"));
    this.note.hidden = items.length > 0;
    const first = (this.tokens.length - 1) * rows + 1;
    replace(this.where, items.length ? `${count(first)} to ${count(first + items.length - 1)}${next ? ", and more" : ""}` : "");
    this.back.toggleAttribute("disabled", this.tokens.length < 2);
    this.forth.toggleAttribute("disabled", !next);
    for (const each of [this.back, this.forth]) each.hidden = this.tokens.length < 2 && !next;
    this.options.drawn?.(items);
  }

  #fail(error) {
    // A token of a page that is no longer valid: start again.
    this.tokens = [""];
    replace(this.note, error.message);
    this.note.hidden = false;
  }

  #turn(by) {
    if (by > 0 && this.next) this.tokens.push(this.next);
    if (by < 0) this.tokens.pop();
    this.again();
    this.table.root.scrollTop = 0;
  }

  /** Return the parameters of the address that the list understands. */
  #chosen() {
    const { query } = current();
    const names = ["text", ...(this.options.filters ?? []).map((filter) => filter.name), ...(this.options.hidden ?? [])];
    return Object.fromEntries(names.map((name) => [name, query.getAll(name).filter(Boolean)]).filter(([, values]) => values.length));
  }

  #choose(name, value) {
    setQuery({ [name]: value });
    this.tokens = [""];
    this.again();
  }

  #searchField() {
    let alarm = 0;
    const label = `Search ${this.options.label.toLowerCase()}`;
    return /** @type {HTMLInputElement} */ (h("input", {
      type: "search", placeholder: `${label}  ( / )`, "aria-label": label, value: current().query.get("text") ?? "",
      spellcheck: "false", autocomplete: "off",
      oninput: (event) => {
        clearTimeout(alarm);
        alarm = setTimeout(() => this.#choose("text", event.target.value), TYPING_MS);
      },
    }));
  }

  #filters() {
    const { filters = [], hidden = [] } = this.options;
    const { query } = current();
    const selects = filters.map((filter) => {
      const now = query.get(filter.name) ?? "";
      const options = [["", filter.label], ...filter.options].map((each) => {
        const [value, words] = [each].flat();
        return h("option", { value, selected: value === now }, words ?? value);
      });
      return h("select", { "aria-label": filter.label, onchange: (event) => this.#choose(filter.name, event.target.value) }, options);
    });
    const chips = hidden.filter((name) => query.get(name)).map((name) => {
      const chip = button(`${name} ${query.get(name)} ✕`, () => {
        chip.remove();
        this.#choose(name, "");
      }, { class: "chip", "aria-label": `Remove the filter ${name} ${query.get(name)}` });
      return chip;
    });
    const all = [this.search, ...selects, ...chips].filter(Boolean);
    return all.length ? h("div", { class: "filters" }, all) : null;
  }
}

const collator = new Intl.Collator("en", { numeric: true });

/** Compare numbers, or texts with the numbers in them; what is unknown comes last. */
function compare(one, other) {
  if (one === null || one === undefined || other === null || other === undefined) return Number(one === null || one === undefined) - Number(other === null || other === undefined);
  return typeof one === "number" ? one - other : collator.compare(one, other);
}
