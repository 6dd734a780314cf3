// The latest failed tasks: what failed where and why, and its last words.

import { agentLink, frameworkLink, h, link, taskLink } from "../dom.js";
import { many, span } from "../text.js";
import { ending, FAILURES, taskState } from "./states.js";
import { smallTable } from "./table.js";
import { age } from "./task_columns.js";

// So many leave room for the rest of the overview.
const MOST = 5;
const COLUMNS = [
  { name: "Task", cell: (task) => taskLink(task.framework_id, task.task_id) },
  { name: "Framework", cell: (task) => frameworkLink(task.framework_id, task.framework_name) },
  { name: "Agent", cell: (task) => (task.agent_id ? agentLink(task.agent_id, task.hostname) : "") },
  { name: "State", cell: (task) => [taskState(task), " ", ending(task)] },
  { name: "Message", cell: (task) => task.message, class: "message" },
  { name: "Ago", cell: (task) => span(age(task)), class: "number" },
  { name: "Output", cell: (task) => (task.agent_id ? link("stderr", ["tasks", task.framework_id, task.task_id], {}, { "aria-label": `stderr of ${task.task_id}` }) : "") },
];

/** @param {{ failed: number, failures: any[] }} data of the overview */
export function failures({ failed, failures: latest }) {
  if (!failed) return null;
  return h("section", { class: "card failures" }, h("h2", null, many(failed, "failed task")), smallTable("The latest failed tasks", COLUMNS, latest.slice(0, MOST)),
    h("p", null, link("All failed tasks", ["tasks"], { state: FAILURES.join(",") })));
}
