// Columns of lists of tasks.

import { agentLink, frameworkLink, h, roleLink, taskLink } from "../dom.js";
import { amount, span } from "../text.js";
import { ending, taskState } from "./states.js";

/** @param {any} task */
export const age = (task) => {
  const since = task.time_ms || (task.state === "QUEUED" && task.submitted_ms);
  return since ? Math.max(0, (Date.now() - since) / 1000) : null;
};

/** @param {string[]} without names of columns that the view implies */
export function taskColumns(without = []) {
  const all = {
    task: { name: "Task", cell: (task) => [taskLink(task.framework_id, task.task_id), task.name && task.name !== task.task_id ? h("small", { class: "faint" }, ` ${task.name}`) : null].flat(), by: (task) => task.task_id },
    state: { name: "State", cell: taskState, by: (task) => task.state },
    ending: { name: "Ending", cell: ending, by: ending },
    age: { name: "In this state", cell: (task) => span(age(task)), by: age, class: "number" },
    framework: { name: "Framework", cell: (task) => frameworkLink(task.framework_id, task.framework_name), by: (task) => task.framework_name || task.framework_id },
    role: { name: "Role", cell: (task) => roleLink(task.role), by: (task) => task.role },
    agent: { name: "Agent", cell: (task) => (task.agent_id ? agentLink(task.agent_id, task.hostname) : h("span", { class: "faint" }, "waits for one")), by: (task) => task.hostname || task.agent_id || null },
    resources: { name: "Resources", cell: (task) => amount(task.resources), by: (task) => task.resources.milli.cpus ?? null, class: "amount" },
  };
  return Object.entries(all).filter(([name]) => !without.includes(name)).map(([, column]) => column);
}
