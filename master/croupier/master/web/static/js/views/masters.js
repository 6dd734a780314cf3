// The masters: which one leads, since which term, and those that wait to lead.

import { get } from "../api.js";
import { facts, h, replace, section } from "../dom.js";
import { badge } from "../parts/states.js";
import { smallTable } from "../parts/table.js";
import { clock, count, span } from "../text.js";

/** @returns {import("../types.js").View} */
export function masters() {
  const place = h("div");
  return {
    title: "Masters", root: place,
    load: async (signal) => {
      const [master, known] = await Promise.all([get(["master"], {}, signal), get(["masters"], {}, signal)]);
      replace(place, list(known.items ?? []), answering(master, (known.items ?? []).find((each) => each.leader)));
    },
  };
}

function list(all) {
  return section("Masters", smallTable("Masters", [
    { name: "Master", cell: (each) => h("span", { class: "id" }, each.address) },
    { name: "Role", cell: (each) => (each.leader ? badge("good", "leads") : badge("wait", "follows")) },
    { name: "Term", cell: term },
    { name: "Up for", cell: (each) => since(each.since_ms) },
    { name: "Version", cell: (each) => each.version ?? "" },
    { name: "Page", cell: (each) => address(each.http_address) },
  ], all), h("p", { class: "faint" }, all.length > 1
    ? "One leads; if it fails, another one begins the next term. A master that is killed stays in this list for some more seconds."
    : "This is the only master that is known."));
}

function term(each) {
  if (!each.epoch) return h("span", { class: "faint" }, "has not led");
  return each.leader ? [h("b", null, count(each.epoch)), " for ", since(each.term_since_ms)] : h("span", { class: "faint" }, `led term ${count(each.epoch)}`);
}

/** A span of time up to now, with the moment as its title. @param {number | null} ms */
function since(ms) {
  return ms ? h("time", { title: clock(ms) }, span(Math.max(0, Date.now() - ms) / 1000)) : "";
}

/** @param {number} epoch */
function ledSoFar(epoch) {
  return epoch === 1 ? "1: no other master has led this cluster" : `${count(epoch)}: so many masters have led this cluster`;
}

/** @param {any} master the one that answers @param {any} leader the one of the list that leads, if it is known */
function answering(master, leader) {
  return section("This master", facts([
    ["Role", master.is_leader ? badge("good", "leads") : badge("wait", "follows")],
    ["Term", master.is_leader ? ledSoFar(master.epoch) : ""],
    ["Id", master.master_id ? h("span", { class: "id" }, master.master_id) : ""],
    ["Version", master.version],
    ["Address of the leader", h("span", { class: "id" }, master.leader_address ?? leader?.address ?? "")],
    ["Page", address(master.http_address)],
    ["Allocation passes", master.is_leader ? count(master.allocation_passes) : ""],
    ["Agents missing", master.agents_missing ? `${count(master.agents_missing)} have not returned; given up in ${span(master.decided_in_s)}` : ""],
  ]));
}

/** A link only to what is an address of the web. @param {string | null | undefined} text */
function address(text) {
  return text && /^https?:\/\/[^/]+\/?$/.test(text) ? h("a", { href: text, rel: "noreferrer" }, text) : text ?? "";
}
