// A dialog for one action: what it would do (its dry run) first, then the question, then the result.

import { button, h, replace } from "../dom.js";

/**
 * @typedef {{ title: string, verb: string, isGrave?: boolean, fields?: HTMLElement[], word?: string,
 *   dry: () => Promise<any>, effect: (answer: any) => (Node | string)[], act: () => Promise<any>, done?: (answer: any) => void }} Deed
 */

/** Ask about a deed and do it. Focus returns to where it was. @param {Deed} deed */
export function ask(deed) {
  const effect = h("div", { class: "effect", role: "status" });
  const go = button(deed.verb, () => act(), { class: deed.isGrave ? "danger" : "primary", disabled: true });
  const cancel = button("Cancel", () => dialog.close());
  const preview = deed.fields?.length ? button("Show what it does", () => tryOut(), { class: "quiet" }) : null;
  const dialog = /** @type {HTMLDialogElement} */ (
    h("dialog", { "aria-labelledby": "deed-title" },
      h("h2", { id: "deed-title" }, deed.title),
      deed.fields ?? [],
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
  for (const field of deed.fields ?? []) {
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
      const answer = await deed.dry();
      replace(effect, h("h3", null, "What it does"), ...deed.effect(answer));
      go.removeAttribute("disabled");
      if (!deed.fields?.length) cancel.focus();
    } catch (error) {
      replace(effect, h("p", { class: "error", role: "alert" }, error.message));
    }
  }

  async function act() {
    go.setAttribute("disabled", "");
    try {
      const answer = await deed.act();
      dialog.close();
      deed.done?.(answer);
    } catch (error) {
      replace(effect, h("p", { class: "error", role: "alert" }, error.message));
    }
  }

  document.body.append(dialog);
  dialog.showModal();
  if (deed.fields?.length) /** @type {HTMLElement | null} */ (deed.fields[0].querySelector("input, select"))?.focus();
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
