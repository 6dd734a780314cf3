// Who used how much of the cluster in a month, by role, framework, principal or cost center.

import { get } from "../api.js";
import { h, replace, roleLink, section } from "../dom.js";
import { smallTable } from "../parts/table.js";
import { current, setQuery } from "../router.js";
import { percent, short, span } from "../text.js";

const BY = { role: "Role", framework: "Framework", principal: "Principal", label: "Cost center" };
const MONTHS = 13;
const HOUR_S = 3600;
const SIZED = new Set(["mem", "disk"]);
const FIRST = ["cpus", "mem", "disk", "gpus"];

/** @returns {import("../types.js").View} */
export function usage() {
  const table = h("div", { role: "status" });
  const months = latestMonths(new Date());
  let again = () => {};
  const choice = (name, label, options, chosen) => h("select", {
    "aria-label": label, onchange: (event) => { setQuery({ [name]: event.target.value }); again(); },
  }, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  const { query } = current();
  const by = choice("by", "Sum by", Object.entries(BY), query.get("by") ?? "role");
  const month = choice("month", "Month", months.map((each) => [each, each]), query.get("month") ?? months[0]);
  const load = async (signal) => {
    again = () => { void load(signal); };
    const chosen = { by: by.value, ...spanOf(month.value) };
    const found = await get(["usage"], chosen, signal);
    replace(table, told(found, by.value));
  };
  return {
    title: "Usage", load, changed: () => false,
    root: h("div", null, section("Usage over time", h("p", { class: "filters" }, by, " ", month), table)),
  };
}

/** @param {Date} now @returns {string[]} the latest first */
function latestMonths(now) {
  return Array.from({ length: MONTHS }, (_, back) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back)).toISOString().slice(0, 7));
}

/** @param {string} month such as 2026-11 */
function spanOf(month) {
  const [year, number] = month.split("-").map(Number);
  return { since_ms: Date.UTC(year, number - 1), until_ms: Date.UTC(year, number) };
}

/** @param {any} found the answer of `GET /api/v1/usage` @param {string} by */
function told(found, by) {
  if (!found.counted_s) return h("p", null, "No usage was counted in this month.");
  const names = Object.keys(Object.assign({}, ...found.usage.map((each) => each.used)));
  const resources = [...FIRST.filter((name) => names.includes(name)), ...names.filter((name) => !FIRST.includes(name)).sort()];
  const hours = (name, value) => short((value ?? 0) / HOUR_S / (SIZED.has(name) ? 1024 : 1));
  const all = (amounts) => FIRST.filter((name) => amounts[name]).map((name) => `${name} ${hours(name, amounts[name])}`).join(", ");
  return [
    h("p", null, `Counted for ${span(found.counted_s)}; resources times hours, mem and disk in GB. `
      + "Asked, measured and wasted are of tasks that have ended and were measured."),
    smallTable("Usage", [
      { name: BY[by], cell: (each) => (by === "role" ? roleLink(each.name) : each.name || "(none)") },
      { name: "Share", cell: (each) => percent(each.share), class: "number" },
      { name: "Share, hours", cell: (each) => short(each.share_s / HOUR_S), class: "number" },
      ...resources.map((name) => ({ name: `${name}, hours`, cell: (each) => hours(name, each.used[name]), class: "number" })),
      ...["Held", "Offered", "Asked", "Measured", "Wasted"].map((name) =>
        ({ name, cell: (each) => all(each[name.toLowerCase()]), class: "amount" })),
    ], found.usage),
  ];
}
