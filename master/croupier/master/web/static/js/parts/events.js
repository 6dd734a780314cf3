// Events of the cluster as a list, the latest first.

import { agentLink, frameworkLink, h, roleLink, taskLink } from "../dom.js";
import { clock } from "../text.js";

const GRAVE = /failed|lost|gone|unreachable|error|preempt|unhealthy|lapsed|expired/;

/** @param {import("../types.js").ClusterEvent} event */
export function eventRow(event) {
  const about = [
    event.task_id && event.framework_id && taskLink(event.framework_id, event.task_id),
    event.framework_id && !event.task_id && frameworkLink(event.framework_id),
    event.agent_id && agentLink(event.agent_id),
    event.role && !event.framework_id && roleLink(event.role),
  ].filter(Boolean);
  return h("li", { class: GRAVE.test(event.kind) ? "grave" : null, "data-id": event.id },
    h("time", { datetime: new Date(event.time_ms || 0).toISOString() }, clock(event.time_ms)),
    h("span", { class: "kind" }, event.kind),
    h("span", { class: "said" }, event.text, about.length ? h("span", { class: "about" }, about.map((each) => [" ", each]).flat()) : null));
}

/** A bounded list of events. */
export class EventList {
  /** @param {number} most @param {string} label */
  constructor(most, label) {
    this.most = most;
    this.root = h("ol", { class: "events", "aria-label": label });
    this.empty = h("p", { class: "empty" }, "Nothing happened lately.");
    this.box = h("div", null, this.root, this.empty);
  }

  /** Add events, the oldest first. @param {import("../types.js").ClusterEvent[]} events */
  add(events) {
    for (const event of events) this.root.prepend(eventRow(event));
    while (this.root.childElementCount > this.most) this.root.lastElementChild.remove();
    this.empty.hidden = this.root.childElementCount > 0;
  }

  /** @param {import("../types.js").ClusterEvent[]} events */
  replace(events) {
    this.root.replaceChildren();
    this.add(events);
  }
}
