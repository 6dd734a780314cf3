// Another master, when this one no longer answers.
// Rule: the page is left only for a master that answers, for the browser may be what is cut off.

import { latest } from "./feed.js";

const PROBE_MS = 2000;

/** Return the addresses of the pages of the masters that followed when this one last told. */
export function otherMasters() {
  const told = (latest()?.masters ?? []).filter((each) => !each.leader).map((each) => each.http_address ?? "");
  return told.filter((page) => /^https?:\/\/[^/]+$/.test(page) && page !== location.origin);
}

/** Return the first of `pages` that answers; empty: none does. @param {string[]} pages */
export async function answering(pages) {
  try {
    return await Promise.any(pages.map(probe));
  } catch {
    return "";
  }
}

/** @param {string} page */
async function probe(page) {
  // Of another origin one learns only that there is an answer. The request carries no token.
  await fetch(`${page}/healthz`, { mode: "no-cors", credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(PROBE_MS) });
  return page;
}
