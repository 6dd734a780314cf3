// Events of the cluster as a list, the latest first.

import { agentLink, frameworkLink, h, roleLink, taskLink } from "../dom.js";
import { clock } from "../text.js";

/** Kinds of events as the master has them, and those that are problems; a test compares them. */
export const KINDS = [
  "agent-disconnected", "agent-drained", "agent-gone", "agent-healthy", "agent-operated", "agent-refused", "agent-registered",
  "agent-stopped", "agent-suspected", "agent-tasks-unproven", "agent-unhealthy", "agent-unreachable", "budget-reached",
  "framework-backed-off",
  "framework-disconnected", "framework-removed", "framework-subscribed", "framework-torn-down", "hold-ended", "hold-made",
  "offers-lapsed", "preemption-begun", "preemption-ended", "reservation-changed", "reservation-made", "role-changed", "task-dropped", "task-error", "task-failed", "task-finished",
  "task-gone", "task-killed", "task-killing", "task-lost", "task-placed", "task-queued", "task-running", "task-starting",
  "task-unknown", "task-unreachable", "term-began",
];
export const PROBLEMS = [
  "agent-disconnected", "agent-gone", "agent-refused", "agent-suspected", "agent-tasks-unproven", "agent-unhealthy",
  "agent-unreachable", "budget-reached", "framework-backed-off", "offers-lapsed", "preemption-begun", "task-dropped", "task-error", "task-failed",
  "task-gone", "task-lost", "task-unknown", "task-unreachable",
];

/** Whether an event is of a kind, a first word of kinds, or `problem`, as the API understands these. */
export const isOf = (/** @type {string} */ kind, /** @type {string} */ word) => word === "problem" ? PROBLEMS.includes(kind) : kind === word || kind.startsWith(`${word}-`);

/** The objects that an event is about, by the word in its text that names them. */
function objects(event) {
  const { task_id: task, framework_id: framework, agent_id: agent, role } = event;
  return [
    [task && framework ? task : "", () => taskLink(framework, task)],
    [framework, () => frameworkLink(framework)],
    [agent, () => agentLink(agent)],
    [role, () => roleLink(role)],
  ].filter(([word]) => word);
}

/** Return the text with links at the words that name objects, and the links of the others. */
function linked(text, found) {
  if (!found.length) return [text];
  const [[word, make], ...rest] = found;
  const at = text.split(/(\s+)/).findIndex((part) => part.replace(/[.,:;]$/, "") === word);
  if (at < 0) return linked(text, rest);
  const parts = text.split(/(\s+)/);
  const before = parts.slice(0, at).join("");
  const after = parts[at].slice(word.length) + parts.slice(at + 1).join("");
  return [...linked(before, rest), make(), ...linked(after, rest)];
}

/** @param {import("../types.js").ClusterEvent} event */
export function eventRow(event) {
  const found = objects(event);
  const said = linked(event.text, found);
  const about = said.length > 1 ? [] : found.slice(0, 2).map(([, make]) => make());
  return h("li", { class: PROBLEMS.includes(event.kind) ? "grave" : null, "data-id": event.id },
    h("time", { datetime: new Date(event.time_ms || 0).toISOString() }, clock(event.time_ms)),
    h("span", { class: "kind" }, event.kind),
    h("span", { class: "said" }, said, about.length ? h("span", { class: "about" }, about.map((each) => [" ", each]).flat()) : null));
}

/** A bounded list of events. */
export class EventList {
  /** @param {number} most @param {string} label */
  constructor(most, label) {
    this.most = most;
    this.root = h("ol", { class: "events", "aria-label": label });
    this.empty = h("p", { class: "empty" }, "No recent events.");
    this.box = h("div", null, this.root, this.empty);
  }

  /** Add events, the oldest first. @param {import("../types.js").ClusterEvent[]} events */
  add(events) {
    const shown = new Set([...this.root.children].map((row) => /** @type {HTMLElement} */ (row).dataset.id));
    for (const event of events) if (!shown.has(event.id)) this.root.prepend(eventRow(event));
    while (this.root.childElementCount > this.most) this.root.lastElementChild.remove();
    this.empty.hidden = this.root.childElementCount > 0;
  }

  /** @param {import("../types.js").ClusterEvent[]} events */
  replace(events) {
    this.root.replaceChildren();
    this.add(events);
  }
}
