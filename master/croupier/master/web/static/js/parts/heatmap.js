// The map of agents: a cell for each agent, coloured by its load. Ten thousand still fit.

import { get } from "../api.js";
import { h, href, replace } from "../dom.js";
import { nothing } from "../session.js";
import { colour, onColours } from "../theme.js";
import { count, many, percent, visible } from "../text.js";
import { loadColour } from "./scale.js";

const MOST_CELL = 30;
const LEAST_CELL = 4;
const HEIGHT = 330;
const NAMING_MS = 150;
const MOST_LOAD = "most used resource";

/**
 * As `GET /api/v1/heatmap` gives it, and decoded.
 * @typedef {{ prefix: string, agents: string[], states: string[], state: number[], used: Record<string, number[]> }} Packed
 * @typedef {{ agents: string[], state: string[], used: Record<string, number[]> }} Columns
 */

export class Heatmap {
  constructor() {
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {
      tabindex: "0", role: "application", "aria-roledescription": "map of agents", "aria-describedby": "map-text",
      onmousemove: (event) => this.#point(this.#indexAt(event)), onmouseleave: () => this.#point(-1),
      onclick: (event) => this.#open(this.#indexAt(event)), onkeydown: (event) => this.#key(event),
      onblur: () => this.#point(-1), onfocus: () => this.#point(this.at < 0 ? 0 : this.at),
    }));
    this.summary = h("p", { class: "map-summary", role: "status", "aria-live": "polite" });
    this.text = h("div", { id: "map-text" });
    this.choice = h("select", { "aria-label": "Resource of the map", onchange: () => this.draw() });
    this.order = h("select", { "aria-label": "Order of the map", onchange: () => this.draw() },
      h("option", { value: "id" }, "in the order of ids"), h("option", { value: "load" }, "busiest first"));
    this.scale = h("span", { class: "scale", "aria-hidden": "true" }, "0 %",
      h("span", { class: "ramp" }, Array.from({ length: 12 }, (_, step) => h("i", { style: { background: loadColour(step / 11) } }))), "100 %");
    this.root = h("div", { class: "map" }, h("div", { class: "filters" }, this.choice, this.order, this.scale), this.canvas, this.summary, this.text);
    this.at = -1;
    /** @type {number[]} */
    this.sorted = [];
    /** @type {number[]} */
    this.loads = [];
    this.watching = new ResizeObserver(() => this.draw());
    this.watching.observe(this.root);
    this.forget = onColours(() => this.draw());
  }

  stop() {
    clearTimeout(this.naming);
    this.watching.disconnect();
    this.forget();
  }

  /** @param {Packed} packed */
  update(packed) {
    /** @type {Columns} */
    const columns = (this.columns = {
      agents: packed.agents.map((rest) => packed.prefix + rest),
      state: packed.state.map((place) => packed.states[place]),
      used: packed.used,
    });
    const names = [MOST_LOAD, ...Object.keys(columns.used)];
    const chosen = this.choice.value;
    if (names.join() !== this.names) replace(this.choice, names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
    this.names = names.join();
    this.draw();
  }

  draw() {
    const width = Math.floor(this.root.clientWidth);
    if (!this.columns || width < 50) return;
    const number = this.columns.agents.length;
    this.#measure();
    this.cell = MOST_CELL;
    while (this.cell > LEAST_CELL && Math.ceil(number / Math.floor(width / this.cell)) * this.cell > HEIGHT) this.cell -= 1;
    this.across = Math.max(1, Math.floor(width / this.cell));
    const height = Math.max(this.cell, Math.ceil(number / this.across) * this.cell);
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.setProperty("height", `${height}px`);
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const palette = { down: colour("bad"), away: colour("panel"), mark: colour("warn"), cursor: colour("text") };
    for (let place = 0; place < number; place += 1) this.#cell(pen, place, palette);
    this.#describe();
  }

  #measure() {
    const { used, agents } = this.columns;
    const name = this.choice.value || MOST_LOAD;
    const all = used[name] ? [used[name]] : Object.values(used);
    this.loads = agents.map((_, index) => Math.max(0, ...all.map((column) => column[index] ?? 0)) / 1000);
    this.sorted = agents.map((_, index) => index);
    if (this.order.value === "load") this.sorted.sort((one, other) => this.loads[other] - this.loads[one]);
  }

  #cell(pen, place, palette) {
    const index = this.sorted[place];
    const gap = this.cell > 7 ? 2 : 1;
    const x = (place % this.across) * this.cell;
    const y = Math.floor(place / this.across) * this.cell;
    const side = this.cell - gap;
    const state = this.columns.state[index];
    const isAway = state !== "connected" && !WITHHELD.has(state);
    pen.fillStyle = isAway ? palette.away : loadColour(this.loads[index]);
    pen.fillRect(x, y, side, side);
    if (isAway) {
      pen.strokeStyle = palette.down;
      pen.lineWidth = this.cell > 12 ? 2 : 1;
      pen.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
      pen.beginPath();
      pen.moveTo(x + 1, y + 1);
      pen.lineTo(x + side - 1, y + side - 1);
      pen.moveTo(x + side - 1, y + 1);
      pen.lineTo(x + 1, y + side - 1);
      pen.stroke();
    } else if (WITHHELD.has(state)) {
      pen.fillStyle = palette.mark;
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(x + side * 0.7, y);
      pen.lineTo(x, y + side * 0.7);
      pen.fill();
    }
  }

  #describe() {
    const { agents, state } = this.columns;
    const states = new Map();
    for (const each of state) states.set(each, (states.get(each) ?? 0) + 1);
    const inWords = [...states].sort((a, b) => b[1] - a[1]).map(([name, number]) => `${count(number)} ${name}`).join(", ");
    const tenths = new Array(5).fill(0);
    for (const load of this.loads) tenths[Math.min(4, Math.floor(load * 5))] += 1;
    const mean = this.loads.reduce((sum, load) => sum + load, 0) / (this.loads.length || 1);
    this.canvas.setAttribute("aria-label", `Map of ${many(agents.length, "agent")}. Arrow keys move, Enter opens an agent.`);
    const row = (name, number) => h("tr", null, h("th", { scope: "row" }, name), h("td", { class: "number" }, count(number)));
    const details = this.text.querySelector("details");
    replace(this.text,
      h("p", { class: "faint" }, agents.length ? `${many(agents.length, "agent")}: ${inWords}. On average ${percent(mean)} is used. ` : `${nothing("No agents", "agent")}.`,
        h("span", { class: "key down" }), "not connected ", h("span", { class: "key withheld" }), "withheld from offers"),
      h("details", { open: details?.open ?? false }, h("summary", null, "Loads as a table"),
        h("table", { class: "list narrow" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Load"), h("th", { scope: "col", class: "number" }, "Agents"))),
          h("tbody", null, tenths.map((number, step) => row(`${step * 20} to ${step * 20 + 20} %`, number))))));
  }

  #indexAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.cell);
    const place = Math.floor((event.clientY - box.top) / this.cell) * this.across + column;
    return column < this.across && place < this.sorted.length ? place : -1;
  }

  #point(place) {
    if (this.at >= 0 && place < 0 && document.activeElement === this.canvas) return;
    if (place === this.at) return;
    this.at = place;
    if (place < 0 || !this.sorted.length) {
      replace(this.summary);
      return;
    }
    const index = this.sorted[place];
    const { agents, state, used } = this.columns;
    const loads = Object.entries(used).map(([name, column]) => `${name} ${percent((column[index] ?? 0) / 1000)}`);
    const host = h("span");
    replace(this.summary, h("b", null, agents[index]), host, ` ${visible(state[index])}: ${loads.join(", ")}`);
    // The map has no names of hosts: they would double its size.
    clearTimeout(this.naming);
    this.naming = setTimeout(() => get(["agents", agents[index]]).then((found) => replace(host, ` (${found.hostname})`), () => {}), NAMING_MS);
  }

  #key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across };
    const by = moves[event.key];
    if (by) {
      this.#point(Math.min(this.sorted.length - 1, Math.max(0, this.at + by)));
      event.preventDefault();
    } else if (event.key === "Enter") this.#open(this.at);
  }

  #open(place) {
    if (place >= 0) location.hash = href(["agents", this.columns.agents[this.sorted[place]]]).slice(1);
  }
}

const WITHHELD = new Set(["draining", "drained", "deactivated", "unhealthy"]);
