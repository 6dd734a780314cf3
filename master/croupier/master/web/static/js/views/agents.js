// Agents, and one of them.

import { get } from "../api.js";
import { agentActions } from "../actions.js";
import { agentLink, facts, h, link, replace, section, taskLink } from "../dom.js";
import { resourceBars, resourceLegend, smallBars } from "../parts/bars.js";
import { List } from "../parts/list.js";
import { agentState } from "../parts/states.js";
import { smallTable } from "../parts/table.js";
import { taskColumns } from "../parts/task_columns.js";
import { amount, clock, count, many, span } from "../text.js";

/** @returns {import("../types.js").View} */
export function agents() {
  const list = new List({
    what: "agents", label: "Agents", key: (agent) => agent.agent_id, empty: "No agents are registered.",
    filters: [{ name: "state", label: "any state", options: ["connected", "suspect", "disconnected", "unreachable", "draining", "drained", "deactivated", "unhealthy"] }],
    columns: [
      { name: "Agent", cell: (agent) => [agentLink(agent.agent_id, agent.hostname), h("small", { class: "faint" }, ` ${agent.agent_id}`)], by: (agent) => agent.hostname },
      { name: "State", cell: agentState, by: (agent) => agent.state },
      { name: "Tasks", cell: (agent) => link(count(agent.tasks), ["tasks"], { agent: agent.agent_id }), by: (agent) => agent.tasks, class: "number" },
      { name: "Load", cell: smallBars, by: load, class: "wide" },
      { name: "Used", cell: (agent) => amount(agent.used) || "nothing", by: (agent) => agent.used.milli.cpus ?? 0, class: "amount" },
      { name: "Total", cell: (agent) => amount(agent.total), by: (agent) => agent.total.milli.cpus ?? 0, class: "amount" },
    ],
  });
  return { title: "Agents", root: section("Agents", resourceLegend(), list.root), search: list.search, load: (signal) => list.load(signal) };
}

/** The used part of an agent's most used resource. */
const load = ({ used, total }) => Math.max(0, ...Object.entries(total.milli).map(([name, all]) => (all ? (used.milli[name] ?? 0) / all : 0)));

/** @param {string} id @returns {import("../types.js").View} */
export function agent(id) {
  const head = h("div");
  const tasks = new List({
    what: "tasks", label: "Tasks of the agent", key: (task) => `${task.framework_id}\n${task.task_id}`, columns: taskColumns(["agent"]),
    empty: "No tasks run on it.", fixed: { agent: id }, rows: 50,
  });
  const view = {
    title: `Agent ${id}`, root: h("div", null, head, section("Tasks", tasks.root)), search: tasks.search,
    load: async (signal) => {
      const [found] = await Promise.all([get(["agents", id], {}, signal), tasks.load(signal)]);
      replace(head, about(found, () => view.load(signal).catch(() => {})));
    },
    changed: (event) => !event.agent_id || event.agent_id === id,
  };
  return view;
}

const SHOWN_ATTRIBUTES = 12;

function about(agent, again) {
  return h("div", null, section(`Agent ${agent.hostname || agent.agent_id}`,
    agentActions(agent, again),
    h("div", { class: "columns" },
      facts([
        ["Id", h("span", { class: "id" }, agent.agent_id)],
        ["State", agentState(agent)],
        ["Connected since", clock(agent.connected_since_ms)],
        ["Tasks", count(agent.tasks)],
        ["Address", agent.http_address],
        ["Isolation", agent.isolation.join(", ") || "none"],
        ["Tasks without a user", { "(own)": "run as a uid of their own", "(agent)": "run as the account of the agent" }[agent.default_user] ?? `run as ${agent.default_user}`],
        ["Attributes", attributes(agent.attributes)],
      ]),
      h("div", null, resourceLegend(), resourceBars(agent), h("p", { class: "faint" }, `in all ${amount(agent.total) || "nothing"}`)))),
  agent.problems.length ? section("Problems", h("ul", null, agent.problems.map((each) => h("li", null, h("b", null, each.part), `: ${each.message}`)))) : null,
  agent.devices.length ? section("Devices", devices(agent)) : null,
  agent.drain ? drain(agent.drain) : null);
}

function devices(agent) {
  const uses = (device) => agent.device_uses.filter((use) => use.device_id === device.device_id);
  return smallTable("Devices of the agent", [
    { name: "Device", cell: (each) => h("span", { class: "id" }, each.device_id) },
    { name: "Kind", cell: (each) => each.kind },
    { name: "Type", cell: (each) => each.type || "unknown" },
    { name: "Groups", cell: (each) => each.groups.map(({ topology, name }) => `${topology} ${name}`).join(", ") || "none" },
    { name: "Slots", cell: (each) => count(each.slots), class: "number" },
    { name: "Tasks", cell: (each) => uses(each).map((use) => h("div", null, taskLink(use.framework_id, use.task_id), ` ${use.milli / 1000}`)) },
  ], agent.devices);
}

function attributes(all) {
  const items = Object.entries(all).map(([name, value]) => h("span", { class: "tag" }, `${name}:${value}`));
  if (!items.length) return "none";
  if (items.length <= SHOWN_ATTRIBUTES) return h("span", { class: "tags" }, items);
  return h("details", null, h("summary", null, many(items.length, "attribute")), h("span", { class: "tags" }, items));
}

function drain(progress) {
  if (progress.done) return section("Drain", h("p", null, "It is drained: no tasks are left, and it gets no offers."));
  const rest = progress.estimate_s === null ? "the remaining time is unknown while the agent is disconnected" : `all are killed within ${span(progress.estimate_s)}`;
  return section("Drain", h("p", null, `${many(progress.tasks_left, "task")} left; ${rest}.`),
    progress.blockers.length ? h("h3", null, "What stands in its way") : null,
    progress.blockers.length ? smallTable("What stands in the way of the drain", [
      { name: "Task", cell: (each) => taskLink(each.framework_id, each.task_id) },
      { name: "Reason", cell: (each) => each.reason },
    ], progress.blockers) : null);
}
