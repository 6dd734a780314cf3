// Outstanding offers with their age.

import { agentLink, frameworkLink, h, roleLink, section } from "../dom.js";
import { List } from "../parts/list.js";
import { amount, span } from "../text.js";

/** @returns {import("../types.js").View} */
export function offers() {
  const list = new List({
    what: "offers", label: "Offers", key: (offer) => offer.offer_id, empty: "No offers are outstanding: frameworks have answered all.",
    columns: [
      { name: "Offer", cell: (offer) => h("span", { class: "id" }, offer.offer_id) },
      { name: "Age", cell: age, by: (offer) => offer.age_s, class: "wide" },
      { name: "Framework", cell: (offer) => frameworkLink(offer.framework_id, offer.framework_name), by: (offer) => offer.framework_name || offer.framework_id },
      { name: "Role", cell: (offer) => roleLink(offer.role), by: (offer) => offer.role },
      { name: "Agent", cell: (offer) => agentLink(offer.agent_id, offer.hostname), by: (offer) => offer.hostname || offer.agent_id },
      { name: "Resources", cell: (offer) => amount(offer.resources), class: "amount" },
    ],
  });
  return { title: "Offers", root: section("Offers", list.root), search: list.search, load: (signal) => list.load(signal) };
}

function age(offer) {
  if (offer.age_s === undefined || offer.age_s === null) return `${span(offer.lease_s)} left`;
  const whole = offer.age_s + offer.lease_s;
  const text = `${span(offer.age_s)} of ${span(whole)}`;
  const part = whole ? offer.age_s / whole : 0;
  return h("div", { class: "age" }, h("div", { class: `bar${part > 0.8 ? " late" : ""}`, role: "img", "aria-label": text },
    h("span", { class: "offered", style: { width: `${part * 100}%` } })), h("span", { class: "number" }, text));
}
