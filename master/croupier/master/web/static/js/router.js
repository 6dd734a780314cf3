// Hash routes: `#/tasks/F/T?state=RUNNING`. A reload or another master keeps the place.

/** @typedef {{ parts: string[], query: URLSearchParams }} Route */

/** @returns {Route} */
export function current() {
  const hash = location.hash.replace(/^#\/?/, "");
  const [path, search = ""] = split(hash, "?");
  return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(search) };
}

function split(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * Change parameters of the route without a new entry of the history, and without drawing again.
 * @param {Record<string, string | string[]>} changes empty values are removed
 */
export function setQuery(changes) {
  const { query } = current();
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const each of [value].flat()) if (each) query.append(name, each);
  }
  const base = location.hash.split("?")[0] || "#/";
  const search = query.toString();
  history.replaceState(null, "", search ? `${base}?${search}` : base);
}
