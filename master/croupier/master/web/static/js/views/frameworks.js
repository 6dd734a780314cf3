// Frameworks, and one of them.

import { get } from "../api.js";
import { teardownButton } from "../actions.js";
import { facts, frameworkLink, h, link, replace, roleLink, section } from "../dom.js";
import { latest } from "../feed.js";
import { shareBar, shareLegend } from "../parts/bars.js";
import { List } from "../parts/list.js";
import { frameworkState } from "../parts/states.js";
import { smallTable } from "../parts/table.js";
import { taskColumns } from "../parts/task_columns.js";
import { why } from "../parts/why.js";
import { amount, clock, count, percent, span } from "../text.js";

const FORETELL_MS = 30_000;

/** @returns {import("../types.js").View} */
export function frameworks() {
  let total = latest()?.total;
  const list = new List({
    what: "frameworks", label: "Frameworks", key: (each) => each.framework_id, empty: "No frameworks are registered.",
    columns: [
      { name: "Framework", cell: (each) => frameworkLink(each.framework_id, each.name), by: (each) => each.name },
      { name: "State", cell: frameworkState, by: (each) => each.state },
      { name: "Roles", cell: (each) => each.roles.map((role, index) => [index ? ", " : "", roleLink(role)]).flat(), by: (each) => each.roles.join() },
      { name: "Progress", cell: progress, by: (each) => each.done, class: "wide" },
      { name: "Share", cell: (each) => percent(each.share), by: (each) => each.share, class: "number" },
      { name: "Entitled to", cell: (each) => percent(each.entitlement), by: (each) => each.entitlement, class: "number" },
      { name: "", cell: (each) => shareBar(each, total), class: "wide" },
      { name: "Offers", cell: (each) => count(each.offers), by: (each) => each.offers, class: "number" },
      { name: "Used", cell: (each) => amount(each.used), by: (each) => each.used.milli.cpus ?? 0, class: "amount" },
      { name: "Wants", cell: (each) => demandText(each), class: "amount" },
    ],
  });
  return {
    title: "Frameworks", search: list.search,
    root: section("Frameworks", shareLegend(), list.root),
    load: async (signal) => {
      total ??= (await get(["master"], {}, signal)).total;
      await list.load(signal);
    },
  };
}

/** Done, running and queued tasks as a bar, and in words. @param {any} framework */
function progress({ done, failed, running, queued }) {
  const words = [done && `${count(done)} done`, failed && `${count(failed)} of them failed`, `${count(running)} running`, `${count(queued)} queued`].filter(Boolean).join(", ");
  const all = done + running + queued;
  const part = (kind, number) => h("span", { class: kind, style: { width: `${(all ? number / all : 0) * 100}%` } });
  return h("span", { class: "progress" }, all ? h("span", { class: "bar", role: "img", "aria-label": words, title: words },
    part("done", done - failed), part("failed", failed), part("used", running)) : null, h("small", null, words));
}

/** @param {any} demand */
function oneDemand(demand) {
  const number = demand.count === null ? "any number of" : count(demand.count);
  const portions = demand.min_per_offer > 1 || demand.max_per_offer ? `, ${demand.min_per_offer} to ${demand.max_per_offer ?? "any"} at once` : "";
  const place = demand.role ? ` in ${demand.role}` : "";
  const where = demand.constraints.length ? ` where ${demand.constraints.join(", ")}` : "";
  return `${number} × (${amount(demand.unit)})${portions}${place}${where}`;
}

function demandText(framework) {
  const wanted = framework.demands.filter((demand) => demand.count !== 0);
  if (!wanted.length && (framework.suppressed || framework.demands.length)) return "nothing more";
  return wanted.map(oneDemand).join("; ") || "whatever is free";
}

/** @param {string} id @returns {import("../types.js").View} */
export function framework(id) {
  const head = h("div");
  const reasons = h("div");
  const tasks = new List({
    what: "tasks", label: "Tasks of the framework", key: (task) => task.task_id, columns: taskColumns(["framework"]),
    empty: "It has no tasks.", fixed: { framework: id }, rows: 50,
  });
  const root = h("div", null, head, section("Why it gets no more", reasons), section("Tasks", tasks.root));
  // A forecast takes a while, and is good for a while.
  let foretold = { at: -Infinity, forecasts: [] };
  const explain = async (signal) => {
    const isDue = performance.now() - foretold.at > FORETELL_MS;
    const explained = await get(["frameworks", id, "why"], isDue ? { forecasts: 1 } : {}, signal);
    if (isDue) foretold = { at: performance.now(), forecasts: explained.forecasts };
    return { ...explained, forecasts: foretold.forecasts };
  };
  const view = {
    title: `Framework ${id}`, root, search: tasks.search,
    load: async (signal) => {
      const again = () => view.load(signal).catch(() => {});
      const [found, explained] = await Promise.all([get(["frameworks", id], {}, signal), explain(signal), tasks.load(signal)]);
      replace(head, about(found, again));
      replace(reasons, why(explained));
    },
    changed: (event) => !event.framework_id || event.framework_id === id,
  };
  return view;
}

function about(found, again) {
  return section(`Framework ${found.name || found.framework_id}`,
    teardownButton(found, again),
    h("div", { class: "columns" }, facts([
      ["Id", h("span", { class: "id" }, found.framework_id)],
      ["State", frameworkState(found)],
      ["Connected since", clock(found.connected_since_ms)],
      ["Roles", found.roles.map((role, index) => [index ? ", " : "", roleLink(role)]).flat()],
      ["Takes no offers in", found.suppressed_roles.join(", ")],
      ["Share", [`${percent(found.share)}, entitled to ${percent(found.entitlement)}`, shareBar(found, latest()?.total)]],
      ["Used", amount(found.used) || "nothing"],
      ["Offered", amount(found.offered)],
      ["Tasks", link(progress(found), ["tasks"], { framework: found.framework_id })],
      ["Offers", count(found.offers)],
      ["Host", found.hostname],
      ["Own page", found.webui_url],
      ["Fails over within", span(found.failover_timeout_s)],
      ["Owner", found.owner],
      ["Labels", found.labels.map((label) => `${label.key}=${label.value}`).join(", ")],
    ]), h("div", null, h("h3", null, "Demands"), demands(found))));
}

function demands(found) {
  return (
    found.demands.length ? smallTable("Demands", [
      { name: "Units", cell: (each) => (each.count === null ? "any number" : count(each.count)), class: "number" },
      { name: "Unit", cell: (each) => amount(each.unit) },
      { name: "Role", cell: (each) => each.role ?? found.roles[0] },
      { name: "Constraints", cell: (each) => each.constraints.join(", ") },
      { name: "At once", cell: (each) => `${each.min_per_offer} to ${each.max_per_offer ?? "any"}`, class: "number" },
    ], found.demands) : h("p", { class: "faint" }, demandText(found))
  );
}
