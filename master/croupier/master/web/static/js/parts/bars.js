// Bars of resources and shares, each with its numbers as text for readers of the screen.

import { h } from "../dom.js";
import { percent, scalar } from "../text.js";

const part = (value, whole) => (whole > 0 ? Math.min(1, Math.max(0, value / whole)) : 0);
const width = (fraction) => ({ width: `${(fraction * 100).toFixed(3)}%` });

/**
 * A bar of one resource: used, offered, held and idle, free.
 * @param {string} name
 * @param {number} used @param {number} offered @param {number} total in thousandths
 * @param {number} [held] idle parts of holds, in thousandths
 */
export function resourceBar(name, used, offered, total, held = 0) {
  const idle = held ? `${scalar(name, held)} held, ` : "";
  const free = scalar(name, Math.max(0, total - used - offered - held));
  const text = `${name}: ${scalar(name, used)} used, ${scalar(name, offered)} offered, ${idle}${free} free of ${scalar(name, total)}`;
  return h("div", { class: "bar", role: "img", "aria-label": text, title: text },
    h("span", { class: "used", style: width(part(used, total)) }),
    h("span", { class: "offered", style: width(part(offered, total)) }),
    held ? h("span", { class: "held", style: width(part(held, total)) }) : null);
}

/**
 * Bars of the scalars of a total, each with its name and numbers.
 * @param {{ total: any, used: any, offered: any, held: any }} amounts
 */
export function resourceBars({ total, used, offered, held }) {
  const names = Object.keys(total?.milli ?? {}).filter((name) => total.milli[name]);
  if (!names.length) return h("p", { class: "faint" }, "no resources");
  return h("div", { class: "bars" }, names.map((name) => {
    const [u, o, t, i] = [used, offered, total, held].map((amount) => amount?.milli?.[name] ?? 0);
    return h("div", { class: "bar-row" },
      h("span", { class: "name" }, name),
      resourceBar(name, u, o, t, i),
      h("span", { class: "number" }, `${scalar(name, u)} / ${scalar(name, t)}`));
  }));
}

/**
 * Narrow bars of the first scalars of an agent, for a row of a table.
 * @param {{ total: any, used: any, offered: any, held: any }} agent
 */
export function smallBars({ total, used, offered, held }) {
  const names = Object.keys(total?.milli ?? {}).filter((name) => total.milli[name]).slice(0, 4);
  return h("div", { class: "small-bars" }, names.map((name) =>
    resourceBar(name, used?.milli?.[name] ?? 0, offered?.milli?.[name] ?? 0, total.milli[name], held?.milli?.[name] ?? 0)));
}

/**
 * Return the greatest, or for a limit the least, part of the cluster in an amount.
 * @param {any} amount @param {any} total @param {(...numbers: number[]) => number} pick
 * @returns {number | null}
 */
export function partOf(amount, total, pick) {
  const parts = Object.entries(amount?.milli ?? {})
    .filter(([name]) => total?.milli?.[name])
    .map(([name, milli]) => milli / total.milli[name]);
  return parts.length ? pick(...parts) : null;
}

/**
 * A role's or framework's dominant share, with marks of what it is due.
 * @param {{ share: number, entitlement: number, guarantee?: any, limit?: any }} of
 * @param {any} total of the cluster
 */
export function shareBar(of, total) {
  const guarantee = partOf(of.guarantee, total, Math.max);
  const limit = partOf(of.limit, total, Math.min);
  const words = [`share ${percent(of.share)}`, `entitled to ${percent(of.entitlement)}`];
  if (guarantee !== null) words.push(`guaranteed ${percent(guarantee)}`);
  if (limit !== null) words.push(`limited to ${percent(limit)}`);
  const mark = (kind, at) => at !== null && h("i", { class: `mark ${kind}`, style: { left: `${Math.min(100, at * 100)}%` } });
  const isShort = of.share < of.entitlement * 0.99;
  return h("div", { class: `bar share${isShort ? " short" : ""}`, role: "img", "aria-label": words.join(", "), title: words.join(", ") },
    h("span", { class: "used", style: width(Math.min(1, of.share)) }),
    limit !== null && h("span", { class: "beyond", style: { left: `${Math.min(100, limit * 100)}%` } }),
    mark("entitled", of.entitlement), mark("guaranteed", guarantee), mark("limited", limit));
}

/** What the marks of share bars mean. */
export function shareLegend() {
  const item = (kind, text) => h("li", null, h("i", { class: `mark ${kind}` }), text);
  return h("ul", { class: "legend" }, h("li", null, h("i", { class: "swatch used" }), "share of the cluster"),
    item("entitled", "entitlement"), item("guaranteed", "guarantee"), item("limited", "limit"));
}

/** What the colours of resource bars mean. */
export function resourceLegend() {
  return h("ul", { class: "legend" }, ["used", "offered", "held", "free"].map((kind) =>
    h("li", null, h("i", { class: `swatch ${kind}` }), kind)));
}
