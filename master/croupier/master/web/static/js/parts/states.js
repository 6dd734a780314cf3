// States of tasks, agents and frameworks: a shape, a colour and a word, so that none depends on
// colour alone.

import { h } from "../dom.js";
import { span } from "../text.js";

const MARKS = {
  good: "●", busy: "◐", wait: "○", bad: "✕", warn: "▲", done: "✓",
};

/** @type {Record<string, keyof typeof MARKS>} */
const TASKS = {
  QUEUED: "wait", STAGING: "busy", STARTING: "busy", RUNNING: "good", KILLING: "warn", UNREACHABLE: "warn",
  FINISHED: "done", KILLED: "done", FAILED: "bad", ERROR: "bad", LOST: "bad", DROPPED: "bad", GONE: "bad", GONE_BY_OPERATOR: "bad",
};

/** States of tasks that filters offer, live ones first. */
export const TASK_STATES = ["QUEUED", "STAGING", "STARTING", "RUNNING", "KILLING", "UNREACHABLE", "FINISHED", "FAILED", "KILLED", "LOST", "ERROR", "DROPPED", "GONE"];
const ENDED = new Set(["FINISHED", "KILLED", "FAILED", "ERROR", "LOST", "DROPPED", "GONE", "GONE_BY_OPERATOR"]);

export const FAILURES = ["FAILED", "LOST", "ERROR", "DROPPED", "GONE", "GONE_BY_OPERATOR"];

/** @param {string} state */
export const hasFailed = (state) => FAILURES.includes(state);

/** @param {string} state */
export const hasEnded = (state) => ENDED.has(state);

/**
 * @param {keyof typeof MARKS} kind
 * @param {string} text
 * @param {string} [title]
 */
export function badge(kind, text, title) {
  return h("span", { class: `state ${kind}`, title }, h("span", { class: "sign", "aria-hidden": "true" }, MARKS[kind]), text);
}

/** @param {any} task */
export function taskState(task) {
  return badge(TASKS[task.state] ?? "warn", task.state, task.message || null);
}

/** Return the exit code, or the signal, and the reason, of a task. @param {any} task */
export function ending(task) {
  const words = [];
  if (task.signal !== null && task.signal !== undefined) words.push(`signal ${task.signal}`);
  else if (task.exit_code !== null && task.exit_code !== undefined) words.push(`code ${task.exit_code}`);
  if (task.reason && !["NONE", "COMMAND_EXECUTOR_FAILED", task.state].includes(task.reason)) words.push(task.reason);
  return words.join(", ");
}

/** @param {any} agent */
export function agentState(agent) {
  const badges = [badge(agent.state === "connected" ? "good" : "bad", agent.state)];
  if (agent.drain) badges.push(agent.drain.done ? badge("done", "drained") : badge("busy", `draining, ${agent.drain.tasks_left} left`));
  if (agent.deactivated) badges.push(badge("wait", "deactivated"));
  for (const each of agent.problems ?? []) badges.push(badge("warn", each.part, each.message));
  if (agent.decided_in_s !== null && agent.decided_in_s !== undefined) badges.push(badge("warn", `given up in ${span(agent.decided_in_s)}`));
  return h("span", { class: "states" }, badges);
}

/** @param {any} framework */
export function frameworkState(framework) {
  const badges = [badge(framework.state === "connected" || framework.state === "active" ? "good" : "warn", framework.state)];
  if (framework.removed_in_s !== null && framework.removed_in_s !== undefined) badges.push(badge("warn", `removed in ${span(framework.removed_in_s)}`));
  return h("span", { class: "states" }, badges);
}
