// A dialog for one action: what it would do (its dry run) first, then the question, then the result.

import { button, h, replace } from "../dom.js";

/**
 * @typedef {{ title: string, verb: string, isGrave?: boolean, fields?: HTMLElement[], word?: string,
 *   dry: () => Promise<any>, effect: (answer: any) => (Node | string)[], act: () => Promise<any>, done?: (answer: any) => void }} Action
 */

/** Ask about an action and do it. Focus returns to where it was. @param {Action} action */
export function ask(action) {
  const effect = h("div", { class: "effect", role: "status" });
  const go = button(action.verb, () => act(), { class: action.isGrave ? "danger" : "primary", disabled: true });
  const cancel = button("Cancel", () => dialog.close());
  const preview = action.fields?.length ? button("Show what it does", () => tryOut(), { class: "quiet" }) : null;
  const dialog = /** @type {HTMLDialogElement} */ (
    h("dialog", { "aria-labelledby": "dialog-title" },
      h("h2", { id: "dialog-title" }, action.title),
      action.fields ?? [],
      preview,
      effect,
      h("p", { class: "actions" }, cancel, go))
  );
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  // Another value needs another dry run.
  for (const field of action.fields ?? []) {
    field.addEventListener("input", () => {
      go.setAttribute("disabled", "");
      replace(effect);
    });
    field.addEventListener("keydown", (event) => {
      if (/** @type {KeyboardEvent} */ (event).key === "Enter") tryOut();
    });
  }

  async function tryOut() {
    replace(effect, h("p", { class: "faint" }, "Asking the master what this would do …"));
    try {
      const answer = await action.dry();
      replace(effect, h("h3", null, "What it does"), ...action.effect(answer));
      go.removeAttribute("disabled");
      if (!action.fields?.length) cancel.focus();
    } catch (error) {
      replace(effect, h("p", { class: "error", role: "alert" }, error.message));
    }
  }

  async function act() {
    go.setAttribute("disabled", "");
    try {
      const answer = await action.act();
      dialog.close();
      action.done?.(answer);
    } catch (error) {
      replace(effect, h("p", { class: "error", role: "alert" }, error.message));
    }
  }

  document.body.append(dialog);
  dialog.showModal();
  if (action.fields?.length) /** @type {HTMLElement | null} */ (action.fields[0].querySelector("input, select"))?.focus();
  else tryOut();
  return dialog;
}

/**
 * A field of a form with its label.
 * @param {string} label
 * @param {Record<string, any>} props of the input
 * @param {string} [hint]
 */
export function field(label, props, hint) {
  return h("label", { class: "field" }, h("span", null, label), h("input", { type: "text", autocomplete: "off", spellcheck: "false", ...props }),
    hint ? h("small", { class: "faint" }, hint) : null);
}

/** Say something for a few seconds. @param {string} text */
export function toast(text) {
  const element = h("p", { class: "toast", role: "status" }, text);
  document.getElementById("toasts")?.append(element);
  setTimeout(() => element.remove(), 6000);
}
