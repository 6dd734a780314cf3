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
