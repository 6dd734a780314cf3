// Signing in with a token.

import { h, replace } from "../dom.js";
import { signIn } from "../session.js";

/** @param {any} error */
function told(error) {
  if (error.leader) return "This master is a follower. Sign in at the one that leads.";
  if (error.code === "not-leader") return `${error.message}. Open the page of the master that leads; its address is not known here.`;
  return error.message;
}

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
      replace(problem, told(error));
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
