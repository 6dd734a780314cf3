// Lines over time, drawn by uPlot, which is loaded when the first chart is shown.

import { h, replace } from "../dom.js";
import { colour, onColours } from "../theme.js";
import { clock, percent, visible } from "../text.js";
import { lineStyle } from "./scale.js";

const HEIGHT = 220;
/** @type {Promise<any> | null} */
let loading = null;

/** Load uPlot, a classic script, once. */
function library() {
  loading ??= new Promise((resolve, reject) => {
    document.head.append(
      h("link", { rel: "stylesheet", href: "/web/vendor/uplot/uPlot.min.css" }),
      h("script", { src: "/web/vendor/uplot/uPlot.iife.min.js", onload: () => resolve(window["uPlot"]), onerror: () => reject(new Error("the chart cannot be loaded")) }));
  });
  return loading;
}

/** @typedef {{ times: number[], lines: { name: string, values: (number | null)[] }[] }} Series */

export class Chart {
  /** @param {string} label for readers of the screen */
  constructor(label) {
    this.label = label;
    this.plot = null;
    this.place = h("div", { class: "plot", role: "img", "aria-label": label });
    this.legend = h("ul", { class: "legend lines" });
    this.root = h("div", { class: "chart" }, this.place, this.legend);
    /** @type {Series} */
    this.series = { times: [], lines: [] };
    this.watching = new ResizeObserver(() => this.plot?.setSize({ width: this.place.clientWidth, height: HEIGHT }));
    this.watching.observe(this.place);
    this.forget = onColours(() => this.#build());
  }

  stop() {
    this.stopped = true;
    this.watching.disconnect();
    this.forget();
    this.plot?.destroy();
  }

  /** @param {Series} series times in seconds since 1970, values from 0 to 1 */
  async update(series) {
    const isSame = series.lines.map((line) => line.name).join("\n") === this.series.lines.map((line) => line.name).join("\n");
    this.series = series;
    if (isSame && this.plot) {
      this.plot.setData(this.#data());
      this.#writeLegend(null);
      return;
    }
    await library();
    if (!this.stopped) this.#build();
  }

  #data() {
    return [this.series.times, ...this.series.lines.map((line) => line.values)];
  }

  #build() {
    const make = window["uPlot"];
    if (!make || !this.series.lines.length) return;
    this.plot?.destroy();
    this.isDark = isDark();
    const axis = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const options = {
      width: Math.max(200, this.place.clientWidth), height: HEIGHT, legend: { show: false },
      cursor: { y: false, points: { size: 6 } },
      scales: { y: { range: (_, low, high) => [0, Math.max(0.01, Math.min(1, (high || 0) * 1.1))] } },
      axes: [{ ...axis, space: 64, values: (_, ticks) => times(ticks) },
        { ...axis, size: 56, values: (_, ticks) => ticks.map(percent) }],
      series: [{}, ...this.series.lines.map((line, index) => ({ label: visible(line.name), width: 1.75, points: { show: false }, ...lineStyle(index, this.isDark) }))],
      hooks: { setCursor: [(plot) => this.#writeLegend(plot.cursor.idx)] },
    };
    this.plot = new make(options, this.#data(), this.place);
    this.#writeLegend(null);
  }

  /** Write the values at a time, by default the last, into the legend. */
  #writeLegend(index) {
    const { times, lines } = this.series;
    const at = index ?? times.length - 1;
    replace(this.legend, lines.map((line, number) => {
      const { stroke, dash } = lineStyle(number, this.isDark);
      const value = line.values[at];
      return h("li", null, h("i", { class: `line${dash.length ? " dashed" : ""}`, style: { "border-top-color": stroke } }),
        h("span", { class: "name" }, line.name), h("b", null, value === null || value === undefined ? "-" : percent(value)));
    }), h("li", { class: "faint" }, times.length ? clock(times[at] * 1000) : ""));
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Times of day, with seconds if they are close together. @param {number[]} ticks seconds since 1970 */
function times(ticks) {
  const length = ticks.length > 1 && ticks[1] - ticks[0] < 60 ? 8 : 5;
  return ticks.map((at) => new Date(at * 1000).toLocaleTimeString("sv-SE").slice(0, length));
}
