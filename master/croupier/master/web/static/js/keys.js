// The keyboard: `/` to search, `g` and a letter to go, `t` for colours, `?` for help.

import { button, h } from "./dom.js";

const WAIT_MS = 1500;

/**
 * @param {{ pages: { key: string, name: string, path: string }[], search: () => HTMLElement | null, theme: () => void }} what
 * @returns {() => void} shows the help
 */
export function listenToKeys({ pages, search, theme }) {
  let goingUntil = 0;
  const help = () => showHelp(pages);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const going = performance.now() < goingUntil;
    goingUntil = 0;
    const page = going && pages.find((each) => each.key === event.key);
    if (page) location.hash = page.path;
    else if (event.key === "g") {
      goingUntil = performance.now() + WAIT_MS;
      return;
    } else if (event.key === "/") search()?.focus();
    else if (event.key === "t") theme();
    else if (event.key === "?") help();
    else return;
    event.preventDefault();
  });
  return help;
}

function isTyping(target) {
  return target instanceof HTMLElement && target.matches("input:not([type=checkbox]), textarea, select");
}

function showHelp(pages) {
  const row = (keys, what) => h("tr", null, h("th", { scope: "row" }, keys.map((key) => [h("kbd", null, key), " "]).flat()), h("td", null, what));
  const dialog = /** @type {HTMLDialogElement} */ (
    h("dialog", { class: "help", "aria-labelledby": "help-title" },
      h("h2", { id: "help-title" }, "Keyboard"),
      h("table", null, h("tbody", null,
        row(["/"], "search in this view"),
        pages.map((page) => row(["g", page.key], page.name)),
        row(["t"], "light, dark, or as the system"),
        row(["←", "→", "↑", "↓"], "move on the map of agents; Enter opens one"),
        row(["?"], "this help"),
        row(["Esc"], "close"))),
      h("p", { class: "actions" }, button("Close", () => dialog.close(), { class: "primary", autofocus: true })))
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
