// Light, dark, or as the system says. The choice is kept in this browser.

const KEY = "croupier-theme";
const NAMES = ["auto", "light", "dark"];

export function applyTheme() {
  const chosen = read();
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  window.dispatchEvent(new Event("croupier-theme"));
}

export function read() {
  try {
    const kept = localStorage.getItem(KEY) ?? "";
    return NAMES.includes(kept) ? kept : "auto";
  } catch {
    return "auto";
  }
}

/** Go to the next choice and return it. */
export function nextTheme() {
  const next = NAMES[(NAMES.indexOf(read()) + 1) % NAMES.length];
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Private windows may refuse; the choice then lasts as long as the page.
  }
  applyTheme();
  return next;
}

/** Return a colour of the style sheet. @param {string} name such as `used` */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Call `draw` when colours change. @returns {() => void} ends that */
export function onColours(draw) {
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", draw);
  window.addEventListener("croupier-theme", draw);
  return () => {
    media.removeEventListener("change", draw);
    window.removeEventListener("croupier-theme", draw);
  };
}
