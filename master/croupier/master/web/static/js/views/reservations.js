// Agents that are reserved for roles, from certain times on.

import { unreserveButton } from "../actions.js";
import { agentLink, h, roleLink, section } from "../dom.js";
import { List } from "../parts/list.js";
import { clock, count, span } from "../text.js";

/** @param {any} reservation @returns {string} */
function every(reservation) {
  return reservation.every_s ? span(reservation.every_s) : "once";
}

/** @returns {import("../types.js").View} */
export function reservations() {
  const again = () => { void list.load(new AbortController().signal); };
  const list = new List({
    what: "reservations", label: "Reservations", key: (each) => each.reservation_id, empty: "Nothing is reserved.",
    columns: [
      { name: "Reservation", cell: (each) => h("span", { class: "id" }, each.reservation_id) },
      { name: "Role", cell: (each) => roleLink(each.role), by: (each) => each.role },
      { name: "State", cell: (each) => each.state, by: (each) => each.state },
      { name: "Begins", cell: (each) => clock(each.begin_time_ms), by: (each) => each.begin_time_ms },
      { name: "Ends", cell: (each) => clock(each.end_time_ms), by: (each) => each.end_time_ms },
      { name: "Every", cell: every, by: (each) => each.every_s },
      { name: "Agents", cell: (each) => each.agents.map((agent) => [agentLink(agent.agent_id, agent.hostname), " "]).flat() },
      { name: "Missing", cell: (each) => count(each.missing), by: (each) => each.missing, class: "number" },
      { name: "Tasks of others", cell: (each) => count(each.others), by: (each) => each.others, class: "number" },
      { name: "", cell: (each) => unreserveButton(each, again) },
    ],
  });
  return { title: "Reservations", root: section("Reservations", list.root), search: list.search, load: (signal) => list.load(signal) };
}
