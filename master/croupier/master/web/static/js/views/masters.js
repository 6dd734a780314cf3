// The masters: which one leads, since which term, and the others as far as they are known.

import { get } from "../api.js";
import { facts, h, replace, section } from "../dom.js";
import { badge } from "../parts/states.js";
import { smallTable } from "../parts/table.js";
import { count, span } from "../text.js";

/** @returns {import("../types.js").View} */
export function masters() {
  const place = h("div");
  return {
    title: "Masters", root: place,
    load: async (signal) => {
      const [master, overview] = await Promise.all([get(["master"], {}, signal), get(["overview"], {}, signal)]);
      replace(place, leader(master), others(overview.masters ?? []));
    },
  };
}

function leader(master) {
  return section("This master", facts([
    ["Id", h("span", { class: "id" }, master.master_id)],
    ["Role", master.is_leader ? badge("good", "leads") : badge("wait", "follows")],
    ["Term", master.epoch === undefined ? "" : count(master.epoch)],
    ["Version", master.version],
    ["Address of frameworks and agents", master.leader_address],
    ["Address of this page", address(master.http_address)],
    ["Policy", master.policy],
    ["Allocation passes", master.allocation_passes === undefined ? "" : count(master.allocation_passes)],
    ["Agents that have not returned", master.agents_missing ? `${count(master.agents_missing)}; given up in ${span(master.decided_in_s)}` : ""],
  ]), h("p", { class: "faint" }, "The term counts the masters that have led the cluster, this one included."));
}

function others(all) {
  if (!all.length) return null;
  return section("Known masters", smallTable("Known masters", [
    { name: "Master", cell: (each) => h("span", { class: "id" }, each.master_id ?? each.address ?? "") },
    { name: "Role", cell: (each) => (each.is_leader ?? each.leader ? badge("good", "leads") : badge("wait", "follows")) },
    { name: "Page", cell: (each) => address(each.http ?? each.http_address ?? "") },
  ], all));
}

/** A link only to what is an address of the web. @param {string | undefined} text */
function address(text) {
  return text && /^https?:\/\/[^/]+\/?$/.test(text) ? h("a", { href: text, rel: "noreferrer" }, text) : text ?? "";
}
