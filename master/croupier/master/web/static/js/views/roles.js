// The tree of roles, with what each holds and is due, and the shares of the last hour.

import { get } from "../api.js";
import { roleActions } from "../actions.js";
import { h, link, section } from "../dom.js";
import { latest } from "../feed.js";
import { shareBar, shareLegend } from "../parts/bars.js";
import { Chart } from "../parts/chart.js";
import { shareSeries } from "../parts/history.js";
import { List } from "../parts/list.js";
import { amount, count, percent, span } from "../text.js";

/** @returns {import("../types.js").View} */
export function roles() {
  const chart = new Chart("Shares of roles in the last hour");
  let reload = () => {};
  let total = latest()?.total;
  const list = new List({
    what: "roles", label: "Roles", key: (role) => role.role, empty: "No role has frameworks or settings.",
    columns: [
      { name: "Role", cell: branch, by: (role) => role.role },
      { name: "Share", cell: (role) => percent(role.share), by: (role) => role.share, class: "number" },
      { name: "Entitled to", cell: (role) => percent(role.entitlement), by: (role) => role.entitlement, class: "number" },
      { name: "Share, entitlement, guarantee, limit", cell: (role) => shareBar(role, total), class: "wide" },
      { name: "Weight", cell: (role) => weightText(role), by: (role) => role.weight, class: "number" },
      { name: "Quota", cell: quota },
      { name: "Frameworks", cell: (role) => link(count(role.frameworks), ["frameworks"], { text: role.role }), class: "number" },
      { name: "Tasks", cell: (role) => link(count(role.tasks), ["tasks"], { role: role.role }), by: (role) => role.tasks, class: "number" },
      { name: "Used", cell: (role) => amount(role.used), class: "amount" },
      { name: "", cell: (role) => roleActions(role, () => reload()), class: "row-actions" },
    ],
  });
  return {
    title: "Roles", search: list.search,
    root: h("div", null, section("Shares in the last hour", chart.root), section("Roles", shareLegend(), list.root)),
    load: async (signal) => {
      reload = () => list.again();
      total ??= (await get(["master"], {}, signal)).total;
      await list.load(signal);
      await chart.update(shareSeries(await get(["history"], {}, signal)));
    },
    stop: () => chart.stop(),
  };
}

function branch(role) {
  const parts = role.role.split("/");
  const depth = parts.length - 1;
  return h("span", { class: "branch", style: { "padding-left": `${Math.min(depth, 12) * 1.1}em` }, title: role.role },
    depth ? h("span", { class: "faint", "aria-hidden": "true" }, "└ ") : null,
    h("span", { class: "id" }, parts.at(-1)), depth ? h("span", { class: "hidden" }, ` of ${parts.slice(0, -1).join("/")}`) : null);
}

function weightText(role) {
  const by = Object.entries(role.resource_weights ?? {}).map(([name, weight]) => `${name} ×${weight}`);
  const past = role.past_use;
  const told = past ? `used ${percent(past.part)} of the past (half-life ${span(role.half_life_s)}, including its share of unused resources), its share is ${percent(past.share)}` : "";
  return [String(role.weight), by.length ? h("small", { class: "faint" }, ` ${by.join(", ")}`) : null,
    past ? h("small", { class: "faint", title: told }, ` counts ×${past.factor.toFixed(2)}`) : null];
}

function quota(role) {
  const words = [];
  if (role.guarantee.text) words.push(h("div", null, `guaranteed ${amount(role.guarantee)}`));
  if (role.limit.text) words.push(h("div", null, `at most ${amount(role.limit)}`));
  if (role.preemption !== null && role.preemption !== undefined) words.push(h("div", null, `preemption ${role.preemption ? "on" : "off"}`));
  if (role.min_run_s !== null && role.min_run_s !== undefined) words.push(h("div", null, `minimum run time ${span(role.min_run_s)}`));
  if (role.budget) words.push(h("div", null, `budget ${role.budget}${role.budget_used === null ? "" : `, ${percent(role.budget_used)} used`}`));
  return words;
}
