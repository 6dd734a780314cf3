// The latest events of the cluster, and the latest overview, which views share.

const MOST = 500;
/** @type {import("./types.js").ClusterEvent[]} */
let events = [];
/** @type {any} */
let overview = null;

/** Events, the oldest first. */
export const recent = () => events;
export const latest = () => overview;

/** @param {import("./types.js").ClusterEvent} event @returns {boolean} whether it is new */
export function remember(event) {
  if (events.some((each) => each.id === event.id)) return false;
  events = [...events.slice(1 - MOST), event];
  return true;
}

/** @param {import("./types.js").ClusterEvent[]} all the oldest first */
export function setEvents(all) {
  events = all.slice(-MOST);
}

/** @param {any} data */
export function setOverview(data) {
  overview = data;
}
