// Resources of agents that are held for frameworks and roles.

import { releaseButton } from "../actions.js";
import { agentLink, frameworkLink, h, roleLink, section } from "../dom.js";
import { List } from "../parts/list.js";
import { amount, count, span } from "../text.js";

/** @param {any} hold @returns {string} */
function kind(hold) {
  if (hold.orphan) return "orphan volume";
  return hold.volume ? "volume" : "hold";
}

/** @returns {import("../types.js").View} */
export function holds() {
  const again = () => { void list.load(new AbortController().signal); };
  const list = new List({
    what: "holds", label: "Holds", key: (hold) => hold.hold_id, empty: "Nothing is held.",
    columns: [
      { name: "Hold", cell: (hold) => h("span", { class: "id" }, hold.hold_id) },
      { name: "Kind", cell: kind, by: kind },
      { name: "For", cell: (hold) => (hold.framework_id ? frameworkLink(hold.framework_id, hold.framework_name) : "its role"), by: (hold) => hold.framework_name || hold.framework_id },
      { name: "Role", cell: (hold) => roleLink(hold.role), by: (hold) => hold.role },
      { name: "Agent", cell: (hold) => agentLink(hold.agent_id, hold.hostname), by: (hold) => hold.hostname || hold.agent_id },
      { name: "Resources", cell: (hold) => amount(hold.resources), class: "amount" },
      { name: "Unused", cell: (hold) => amount(hold.unused), class: "amount" },
      { name: "Tasks", cell: (hold) => count(hold.tasks), by: (hold) => hold.tasks, class: "number" },
      { name: "Ends in", cell: (hold) => (hold.ttl_left_s === null ? "no end" : span(hold.ttl_left_s)), by: (hold) => hold.ttl_left_s ?? Infinity },
      { name: "", cell: (hold) => releaseButton(hold, again) },
    ],
  });
  return { title: "Holds", root: section("Holds", list.root), search: list.search, load: (signal) => list.load(signal) };
}
