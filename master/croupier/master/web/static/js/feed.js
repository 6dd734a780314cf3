// The latest overview, which views share, and the latest events of the stream.

import { get } from "./api.js";

const MOST = 500;
/** @type {import("./types.js").ClusterEvent[]} */
let known = [];
let told = 0;
/** @type {any} */
let overview = null;

/** Whether events were told since the start, or since the last reset. */
export const hasEvents = () => known.length > 0;
export const latest = () => overview;

/** @param {import("./types.js").ClusterEvent} event @returns {boolean} whether it is new */
export function remember(event) {
  if (known.some(({ id }) => id === event.id)) return false;
  known = [...known.slice(1 - MOST), event];
  told += 1;
  return true;
}

export function forgetEvents() {
  known = [];
}

/**
 * Return events of the past, and all that the stream tells until they have come.
 * @param {Record<string, any>} query
 * @param {AbortSignal} signal
 * @returns {Promise<import("./types.js").ClusterEvent[]>}
 */
export async function pastEvents(query, signal) {
  const before = told;
  const { items } = await get(["events"], query, signal);
  const found = new Set(items.map(({ id }) => id));
  const arrived = known.slice(Math.max(0, known.length - (told - before)));
  return [...items, ...arrived.filter(({ id }) => !found.has(id))];
}

/** @param {any} data */
export function setOverview(data) {
  overview = data;
}
