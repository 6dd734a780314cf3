// What a change of roles moves: shares that each is due, before and after.

import { h } from "../dom.js";
import { many, percent, span } from "../text.js";
import { smallTable } from "./table.js";

/** @param {{ roles: any[], others: number }} answer of `POST /api/v1/roles` */
export function shareMoves(answer) {
  const moved = answer.roles ?? [];
  const arrow = (before, after) => (before === after ? after : `${before} → ${after}`);
  const table = smallTable("Roles that change", [
    { name: "Role", cell: (item) => item.role },
    { name: "Weight", cell: (item) => arrow(String(item.before.weight), String(item.after.weight)) },
    { name: "Half-life", cell: (item) => arrow(halfLife(item.before), halfLife(item.after)) },
    { name: "Entitled to", cell: (item) => arrow(percent(item.before.entitlement), percent(item.after.entitlement)) },
    { name: "Guarantee", cell: (item) => arrow(item.before.guarantee.text || "none", item.after.guarantee.text || "none") },
    { name: "Limit", cell: (item) => arrow(item.before.limit.text || "none", item.after.limit.text || "none") },
  ], moved);
  return [table, answer.others ? h("p", { class: "faint" }, `and ${many(answer.others, "further role")}`) : ""];
}

function halfLife(role) {
  return role.half_life_s ? span(role.half_life_s) : "none";
}
