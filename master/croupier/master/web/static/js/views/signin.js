// Signing in with a token.

import { h, replace } from "../dom.js";
import { signIn } from "../session.js";

/** @param {string} message @param {() => Promise<void>} done @returns {import("../types.js").View} */
export function signInView(message, done) {
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true }));
  const problem = h("p", { class: "error", role: "alert" }, message);
  const submit = async (event) => {
    event.preventDefault();
    signIn(input.value.trim());
    replace(problem);
    try {
      await done();
    } catch (error) {
      replace(problem, error.message);
      input.select();
    }
  };
  const form = h("form", { onsubmit: submit, class: "sign-in" },
    h("p", null, "This master asks who you are. Paste your token, which ", h("code", null, "croupier page --show-token"), " prints."),
    h("label", { for: "token" }, "Token"), input,
    h("p", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Sign in")), problem,
    h("p", { class: "faint" }, "The token is kept in this tab only, until you close it or sign out. It is never part of an address."));
  return {
    title: "Sign in",
    root: h("section", { class: "card narrow" }, h("h2", null, "Sign in"), form),
    load: async () => input.focus(),
  };
}
