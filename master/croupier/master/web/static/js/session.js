// The token of the person who signed in, and what the person may do.
// Rule: the token is in this tab's session storage and in the Authorization header, nowhere else.

const KEY = "croupier-token";
/** @type {any} */
let me = null;

/** @returns {string | null} */
export function token() {
  return sessionStorage.getItem(KEY);
}

/** @param {string} value */
export function signIn(value) {
  sessionStorage.setItem(KEY, value);
}

export function signOut() {
  sessionStorage.removeItem(KEY);
  me = null;
}

/** @param {any} whoami the answer of `GET /api/v1/whoami` */
export function setIdentity(whoami) {
  me = whoami;
}

export function identity() {
  return me;
}

/**
 * Return whether the person may do `action` to something; the master checks each object again.
 * @param {string} action such as `kill`
 * @returns {boolean}
 */
export function may(action) {
  return (me?.may ?? []).includes(action);
}

/**
 * Return whether the person may view all objects of a kind; true while that is unknown.
 * @param {string} kind `role`, `agent` or `cluster`
 * @returns {boolean}
 */
export function viewsAll(kind) {
  return (me?.views_all ?? [kind]).includes(kind);
}

/**
 * Return the words for what is empty, such as `No agents.`: of what the person may view, unless that is all.
 * @param {string} text begins with `No` and a noun
 * @param {string} kind as of `viewsAll`
 */
export function nothing(text, kind) {
  return viewsAll(kind) ? text : text.replace(/^(no \w+)/i, "$1 that you may view");
}
