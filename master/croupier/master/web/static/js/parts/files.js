// The files of a task's sandbox: folders to open, files to download.

import { get } from "../api.js";
import { button, h, replace } from "../dom.js";
import { clock, size } from "../text.js";
import { download } from "./output.js";
import { smallTable } from "./table.js";

export class Files {
  /** @param {string} framework @param {string} task */
  constructor(framework, task) {
    this.parts = ["tasks", framework, task, "files"];
    this.place = h("div");
    this.note = h("p", { class: "faint", role: "status" });
    this.crumbs = h("p", { class: "crumbs" });
    this.root = h("div", null, this.crumbs, this.place, this.note);
  }

  start() {
    replace(this.place, button("List the files", () => this.#open("")));
  }

  /** @param {string} folder */
  async #open(folder) {
    try {
      const found = await get(this.parts, { path: folder });
      const items = found.items;
      const above = folder.split("/").slice(0, -1).join("/");
      replace(this.crumbs, `/${folder} `, folder ? button("Up", () => this.#open(above), { class: "quiet small" }) : null);
      replace(this.note, found.cut ? "The folder has more files than are listed." : "");
      replace(this.place, items.length ? smallTable("Files of the sandbox", [
        { name: "Name", cell: (item) => this.#name(folder, item) },
        { name: "Size", cell: (item) => (isFolder(item) ? "" : size(item.size)), class: "number" },
        { name: "Changed", cell: (item) => clock(item.modified_ms) },
      ], items) : h("p", { class: "empty" }, "The folder is empty."));
    } catch (error) {
      replace(this.note, error.message);
    }
  }

  #name(folder, item) {
    const path = folder ? `${folder}/${item.name}` : item.name;
    if (isFolder(item)) return button(`${item.name}/`, () => this.#open(path), { class: "plain" });
    if (item.kind !== "file") return `${item.name} (${item.kind})`;
    return button(item.name, () => download([...this.parts, ...path.split("/")], {}, item.name, this.note), { class: "plain", "aria-label": `Download ${item.name}` });
  }
}

const isFolder = (/** @type {any} */ item) => item.kind === "directory";
