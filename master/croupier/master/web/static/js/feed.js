// The latest overview, which views share, and the ids of the latest events.

const MOST = 500;
/** @type {string[]} */
let known = [];
/** @type {any} */
let overview = null;

/** Whether events were told since the start, or since the last reset. */
export const hasEvents = () => known.length > 0;
export const latest = () => overview;

/** @param {import("./types.js").ClusterEvent} event @returns {boolean} whether it is new */
export function remember({ id }) {
  if (known.includes(id)) return false;
  known = [...known.slice(1 - MOST), id];
  return true;
}

export function forgetEvents() {
  known = [];
}

/** @param {any} data */
export function setOverview(data) {
  overview = data;
}
