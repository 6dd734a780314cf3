// Columns of lists of tasks.

import { agentLink, frameworkLink, h, roleLink, taskLink } from "../dom.js";
import { amount, span } from "../text.js";
import { ending, taskState } from "./states.js";

/** @param {any} task */
const age = (task) => span(task.age_s ?? (task.time_ms ? Math.max(0, (Date.now() - task.time_ms) / 1000) : null));

/** @param {string[]} without names of columns that the view implies */
export function taskColumns(without = []) {
  const all = {
    task: { name: "Task", cell: (task) => [taskLink(task.framework_id, task.task_id), task.name && task.name !== task.task_id ? h("small", { class: "faint" }, ` ${task.name}`) : null].flat() },
    state: { name: "State", cell: taskState },
    ending: { name: "Ending", cell: ending },
    age: { name: "In this state", cell: age, class: "number" },
    framework: { name: "Framework", cell: (task) => frameworkLink(task.framework_id) },
    role: { name: "Role", cell: (task) => roleLink(task.role) },
    agent: { name: "Agent", cell: (task) => (task.agent_id ? agentLink(task.agent_id) : h("span", { class: "faint" }, "waits for one")) },
    resources: { name: "Resources", cell: (task) => amount(task.resources), class: "amount" },
  };
  return Object.entries(all).filter(([name]) => !without.includes(name)).map(([, column]) => column);
}
