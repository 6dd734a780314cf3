// The cluster at a glance.

import { get } from "../api.js";
import { h, link, replace, section } from "../dom.js";
import { hasEvents, latest, pastEvents } from "../feed.js";
import { resourceBar, resourceLegend } from "../parts/bars.js";
import { Chart } from "../parts/chart.js";
import { EventList, isOf } from "../parts/events.js";
import { failures } from "../parts/failures.js";
import { Heatmap } from "../parts/heatmap.js";
import { usedSeries } from "../parts/history.js";
import { FAILURES, hasEnded } from "../parts/states.js";
import { viewsAll } from "../session.js";
import { count, percent, scalar } from "../text.js";

const MAP_EVERY_MS = 5000;
// All but the steps of tasks: these are many.
const NOTABLE = ["agent", "framework", "offers", "preemption", "role", "term", "problem"];
const isNotable = (/** @type {import("../types.js").ClusterEvent} */ event) => NOTABLE.some((word) => isOf(event.kind, word));

/** @returns {import("../types.js").View} */
export function overview() {
  const totals = h("div", { class: "totals" });
  const counts = h("ul", { class: "counts" });
  const notice = h("div");
  const map = new Heatmap();
  const chart = new Chart("Use of each resource in the last hour");
  const events = new EventList(12, "Recent events");
  const failed = h("div");
  let hasPast = false;
  const root = h("div", { class: "overview" }, notice, failed,
    h("div", { class: "columns wide-first" },
      section("Resources", resourceLegend(), totals),
      section("Cluster", counts)),
    section("Agents", map.root),
    h("div", { class: "columns" }, section("Use in the last hour", chart.root),
      section("Recent events", events.box, h("p", null, link("All events", ["events"])))));
  let mappedAt = -Infinity;

  const draw = (data) => {
    replace(totals, resources(data));
    replace(counts, counters(data));
    replace(notice, missing(data));
    replace(failed, failures(data));
  };
  const drawSlow = async (signal) => {
    mappedAt = performance.now();
    const [columns, history] = await Promise.all([get(["heatmap"], {}, signal), get(["history"], {}, signal)]);
    map.update(columns);
    await chart.update(usedSeries(history));
  };
  return {
    title: "Overview", root,
    load: async (signal) => {
      if (latest()) draw(latest());
      if (!hasPast || !hasEvents()) {
        pastEvents({ limit: 12, kind: NOTABLE }, signal).then((found) => events.replace(found.filter(isNotable)), () => {});
        hasPast = true;
      }
      // What is seen first is not kept waiting by the rest.
      const slow = performance.now() - mappedAt > MAP_EVERY_MS ? drawSlow(signal) : null;
      // Its failure is reported below, unless the view is left before.
      slow?.catch(() => {});
      draw(await get(["overview"], {}, signal));
      await slow;
    },
    overview: draw,
    changed: (event) => {
      if (isNotable(event)) events.add([event]);
      // Totals come by themselves.
      return performance.now() - mappedAt > MAP_EVERY_MS;
    },
    stop: () => { map.stop(); chart.stop(); },
  };
}

function resources(data) {
  const names = Object.keys(data.total?.milli ?? {}).filter((name) => data.total.milli[name]);
  if (!names.length && !viewsAll("cluster")) return h("p", { class: "empty" }, "You may not view the totals of the cluster.");
  if (!names.length) return h("p", { class: "empty" }, "No agents are connected, so there are no resources yet.");
  return names.map((name) => {
    const of = (amount) => amount?.milli?.[name] ?? 0;
    const [used, offered, held, total] = [data.used, data.offered, data.held, data.total].map(of);
    const free = Math.max(0, total - used - offered - held);
    return h("div", { class: "total" },
      h("div", { class: "head" }, h("span", { class: "name" }, name), h("b", null, percent(total ? used / total : 0)), h("span", { class: "faint" }, "used")),
      resourceBar(name, used, offered, total, held),
      h("div", { class: "numbers" }, h("span", null, `${scalar(name, used)} used`), offered ? h("span", null, `${scalar(name, offered)} offered`) : null,
        held ? h("span", null, `${scalar(name, held)} held`) : null,
        h("span", null, `${scalar(name, free)} free`), h("span", { class: "faint" }, `of ${scalar(name, total)}`)));
  });
}

function counters(data) {
  const sum = (states) => Object.values(states ?? {}).reduce((all, number) => all + number, 0);
  const item = (name, states, path, extra) => h("li", null, link(h("span", null, h("b", null, count(sum(states))), ` ${name}`), [path]),
    h("span", { class: "faint" }, Object.entries(states ?? {}).filter(([, number]) => number).map(([state, number]) => `${count(number)} ${state}`).join(", ") || extra));
  const none = (kind) => (viewsAll(kind) ? "none yet" : "none that you may view");
  return [
    item("agents", data.agents, "agents", none("agent")),
    item("frameworks", data.frameworks, "frameworks", none("role")),
    item("tasks", live(data.tasks), "tasks", none("role")),
    data.failed ? h("li", null, link(h("span", null, h("b", null, count(data.failed)), " failed tasks"), ["tasks"], { state: FAILURES.join(",") }), h("span", { class: "faint" }, "of those that the master remembers")) : null,
    h("li", null, link(h("span", null, h("b", null, count(data.offers ?? 0)), " offers"), ["offers"]), h("span", { class: "faint" }, "outstanding")),
    h("li", null, link(h("span", null, "term ", h("b", null, String(data.epoch ?? "?"))), ["masters"]), h("span", { class: "faint" }, "of the master")),
  ];
}

/** Numbers of tasks that have not ended; ended ones are in them until they are acknowledged. */
const live = (states) => Object.fromEntries(Object.entries(states ?? {}).filter(([state]) => !hasEnded(state)));

function missing(data) {
  const number = data.agents_missing ?? 0;
  return number ? h("p", { class: "notice", role: "status" }, `${count(number)} known agents have not registered since this master began to lead.`) : null;
}
