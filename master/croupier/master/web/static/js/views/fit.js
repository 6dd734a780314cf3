// What could start now: how many tasks of a shape, where, and what would have to end for one more.

import { ApiError, get } from "../api.js";
import { agentLink, frameworkLink, h, replace, roleLink, section, taskLink } from "../dom.js";
import { field } from "../parts/dialog.js";
import { smallTable } from "../parts/table.js";
import { current, setQuery } from "../router.js";
import { amount, count, many, span } from "../text.js";

const FIELDS = [
  { name: "unit", label: "Resources of one task", value: "cpus:1;mem:128MB", hint: "such as cpus:8;mem:64GB;gpus:1" },
  { name: "role", label: "Role", value: "", hint: "its limits and holds count; empty: none" },
  { name: "constraint", label: "Condition on agents", value: "", hint: "such as rack equals r1; empty: any agent" },
];

/** @returns {import("../types.js").View} */
export function fit() {
  const answer = h("div", { class: "why", role: "status" });
  const fields = FIELDS.map(({ name, label, value, hint }) => field(label, { name, value: current().query.get(name) ?? value }, hint));
  const inputs = fields.map((each) => /** @type {HTMLInputElement} */ (each.querySelector("input")));
  const asked = () => Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]));
  let again = () => {};
  const submit = (event) => {
    event.preventDefault();
    setQuery(asked());
    again();
  };
  const form = h("form", { onsubmit: submit }, fields, h("p", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Count")));
  const load = async (signal) => {
    again = () => { void load(signal); };
    try {
      replace(answer, told(await get(["fit"], asked(), signal)));
    } catch (error) {
      if (!(error instanceof ApiError) || ![400, 403].includes(error.status)) throw error;
      replace(answer, h("p", { class: "error" }, error.message));
    }
  };
  return {
    title: "Fit", load, changed: () => false,
    root: h("div", null, section("What could start now", form), section("Room", answer)),
  };
}

/** @param {any} found the answer of `GET /api/v1/fit` */
function told(found) {
  const limit = found.limit
    ? h("p", null, `No more because of a limit: ${found.limit}.${found.fitting > found.units ? ` The agents have room for ${count(found.fitting)}.` : ""}`)
    : null;
  return [
    h("p", null, h("strong", null, `${many(found.units, "task")} could start now.`)), limit,
    found.agents.length ? smallTable("Agents with room", [
      { name: "Agent", cell: (each) => agentLink(each.agent_id, each.hostname) },
      { name: "Tasks", cell: (each) => count(each.units), class: "number" },
    ], found.agents) : null,
    found.other_agents ? h("p", null, `And on ${many(found.other_agents, "other agent")}.`) : null,
    found.reasons.length ? [h("h3", null, "Other agents"), h("ul", null, found.reasons.map((reason) =>
      h("li", null, `${reason.cause}, ${many(reason.agents, "agent")}`, reason.detail ? h("div", { class: "detail" }, reason.detail) : null)))] : null,
    found.limit ? null : [h("h3", null, "One more"), more(found.move)],
  ].flat();
}

function more(move) {
  if (!move) return h("p", null, "No end of tasks makes room for one more.");
  const parts = [move.offers && many(move.offers, "offer"), move.count && many(move.count, "task")].filter(Boolean);
  return h("div", null,
    h("p", null, "It would fit on ", move.agent_id ? agentLink(move.agent_id, move.hostname) : "an agent", ` without ${parts.join(" and ")}.`),
    move.tasks.length ? smallTable("Tasks that would have to end", [
      { name: "Task", cell: (each) => taskLink(each.framework_id, each.task_id) },
      { name: "Framework", cell: (each) => frameworkLink(each.framework_id, each.framework_name) },
      { name: "Role", cell: (each) => roleLink(each.role) },
      { name: "Resources", cell: (each) => amount(each.resources), class: "amount" },
      { name: "For", cell: (each) => span(each.age_s) },
    ], move.tasks) : null);
}
