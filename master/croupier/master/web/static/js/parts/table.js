// A table whose rows are updated in place, so that focus and selection survive an update.

import { button, h, replace } from "../dom.js";

/**
 * `by` is what rows are sorted by, a number or a text, after a click on the head of the column.
 * @typedef {{ name: string, cell: (item: any) => any, class?: string, by?: (item: any) => any }} Column
 */

export class Table {
  /**
   * @param {string} label for readers of the screen
   * @param {Column[]} columns
   * @param {(item: any) => string} key
   * @param {(column: string) => void} [onHead] called for a click on the head of a column with `by`
   */
  constructor(label, columns, key, onHead) {
    this.columns = columns;
    this.key = key;
    /** @type {Map<string, { row: HTMLElement, shown: string }>} */
    this.rows = new Map();
    this.body = h("tbody");
    this.heads = columns.map(({ name, by, class: kind }) => h("th", { scope: "col", class: kind },
      onHead && by ? button(name, () => onHead(name), { class: "plain", title: `Sort by ${name.toLowerCase()}` }) : name));
    this.root = h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" },
      h("table", { class: "list" },
        h("thead", null, h("tr", null, this.heads)),
        this.body));
  }

  /** Show by which column rows are sorted. @param {string} name @param {boolean} isDown */
  mark(name, isDown) {
    this.columns.forEach((column, at) => {
      if (name && column.name === name) this.heads[at].setAttribute("aria-sort", isDown ? "descending" : "ascending");
      else this.heads[at].removeAttribute("aria-sort");
    });
  }

  /** @param {any[]} items */
  update(items) {
    const kept = new Map();
    let before = this.body.firstElementChild;
    for (const item of items) {
      const key = this.key(item);
      const known = this.rows.get(key) ?? { row: h("tr"), shown: "" };
      const shown = JSON.stringify(item);
      if (known.shown !== shown) this.#draw(known.row, item);
      known.shown = shown;
      kept.set(key, known);
      if (known.row === before) before = before.nextElementSibling;
      else this.body.insertBefore(known.row, before);
    }
    for (const [key, { row }] of this.rows) if (!kept.has(key)) row.remove();
    this.rows = kept;
  }

  #draw(row, item) {
    const focused = row.contains(document.activeElement) ? [...row.querySelectorAll("a, button")].indexOf(document.activeElement) : -1;
    // A narrow window shows a row as a card, with the name of each column.
    replace(row, this.columns.map((column) => this.#cell(column, item)));
    this.#refocus(row, focused);
  }

  /** An empty cell has no value, so that a card leaves it out. */
  #cell(column, item) {
    const value = h("div", null, column.cell(item));
    return h("td", { class: column.class, "data-name": column.name }, value.hasChildNodes() ? value : null);
  }

  #refocus(row, focused) {
    if (focused >= 0) /** @type {HTMLElement} */ (row.querySelectorAll("a, button")[focused])?.focus();
  }
}

/**
 * A table that is drawn once, for few rows.
 * @param {string} label
 * @param {Column[]} columns
 * @param {any[]} items
 */
export function smallTable(label, columns, items) {
  const table = new Table(label, columns, (item) => String(items.indexOf(item)));
  table.update(items);
  return table.root;
}
