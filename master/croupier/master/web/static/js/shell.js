// What stands around every view: the navigation, the state of the connection, the sign-in.

import { button, h, replace } from "./dom.js";
import { answering, otherMasters } from "./failover.js";
import { listenToKeys } from "./keys.js";
import { identity, signOut, token } from "./session.js";
import { nextTheme, read } from "./theme.js";

export const PAGES = [
  { key: "o", name: "Overview", path: "#/overview" },
  { key: "r", name: "Roles", path: "#/roles" },
  { key: "f", name: "Frameworks", path: "#/frameworks" },
  { key: "t", name: "Tasks", path: "#/tasks" },
  { key: "a", name: "Agents", path: "#/agents" },
  { key: "u", name: "Offers", path: "#/offers" },
  { key: "h", name: "Holds", path: "#/holds" },
  { key: "i", name: "Fit", path: "#/fit" },
  { key: "v", name: "Reservations", path: "#/reservations" },
  { key: "s", name: "Usage", path: "#/usage" },
  { key: "p", name: "Preemptions", path: "#/preemptions" },
  { key: "e", name: "Events", path: "#/events" },
  { key: "m", name: "Masters", path: "#/masters" },
];

const WORDS = {
  connecting: "connecting", live: "live", reconnecting: "reconnecting", follower: "follower", "signed-out": "signed out", paused: "paused",
};

// A banner is shown for this long before the page of another master is opened.
const LEAVE_MS = 4000;
// A leader that does not answer is named until its lease ends. This is longer.
const MOST_STAY_MS = 60_000;
// Between two looks for another master.
const AGAIN_MS = 2000;
// The value of `going` of a person who stays.
const STAYS = -1;

export class Shell {
  /** @param {{ search: () => HTMLElement | null, signedOut: () => void, retry: () => void }} what */
  constructor(what) {
    this.main = /** @type {HTMLElement} */ (document.getElementById("main"));
    this.banner = /** @type {HTMLElement} */ (document.getElementById("banner"));
    this.nav = /** @type {HTMLElement} */ (document.getElementById("nav"));
    this.what = what;
    this.links = PAGES.map((page) => h("a", { href: page.path, title: `g ${page.key}` }, page.name));
    replace(this.nav, this.links);
    this.theme = button("", () => this.#turn(), { class: "quiet small" });
    const help = listenToKeys({ pages: PAGES, search: what.search, theme: () => this.#turn() });
    this.status = h("span", { class: "link connecting", role: "status" }, WORDS.connecting);
    this.who = h("span", { class: "who" });
    replace(/** @type {HTMLElement} */ (document.getElementById("tools")), this.status, this.who, this.theme,
      button("?", help, { class: "quiet small", "aria-label": "Help for the keyboard" }));
    this.#label();
  }

  #turn() {
    nextTheme();
    this.#label();
  }

  #label() {
    const now = read();
    replace(this.theme, { auto: "◐", light: "☀", dark: "☾" }[now]);
    this.theme.setAttribute("aria-label", `Colours: ${now === "auto" ? "as the system" : now}`);
    this.theme.setAttribute("title", `Colours: ${now === "auto" ? "as the system" : now} (t)`);
  }

  /** Show who is signed in. */
  tellIdentity() {
    const me = identity();
    const name = me?.principal || "";
    replace(this.who, name ? h("span", { class: "name", title: "principal" }, name) : null,
      token() ? button("Sign out", () => { signOut(); this.what.signedOut(); }, { class: "quiet small" }) : null);
  }

  /** @param {import("./live.js").Status} status */
  tellStatus(status) {
    replace(this.status, WORDS[status.state]);
    this.status.setAttribute("class", `link ${status.state}`);
    this.status.setAttribute("title", status.message ?? "");
    if (status.state === "follower") this.#follower(status.leader ?? "");
    else if (status.state === "reconnecting") this.#lost(status);
    else this.#quiet();
  }

  #quiet() {
    this.#cancel();
    clearTimeout(this.late);
    this.late = 0;
    this.lost = null;
    this.banner.hidden = true;
  }

  /** Forget the page that was to be opened. */
  #cancel() {
    clearTimeout(this.going);
    this.going = 0;
    this.there = "";
  }

  /** This master follows: say who leads and go there, once it answers. @param {string} leader its address */
  #follower(leader) {
    const origin = safeOrigin(leader);
    if (!origin || origin === location.origin || this.going === STAYS || this.there === origin) return;
    this.#cancel();
    this.#leave(origin, "This master is a follower: ", h("b", null, origin), " leads. ");
  }

  /** Say why, and go to the page of another master. @param {string} origin @param {...any} why */
  #leave(origin, ...why) {
    const stay = button("Stay here", () => { this.#cancel(); this.going = STAYS; stay.remove(); }, { class: "quiet small" });
    this.#show(...why, h("a", { href: `${origin}/${location.hash}` }, "Go there"),
      token() ? " (it asks for your token again) " : " ", stay);
    this.there = origin;
    const until = performance.now() + MOST_STAY_MS;
    this.going = setTimeout(() => this.#goOnceItAnswers(origin, until), LEAVE_MS);
  }

  /** @param {string} origin @param {number} until when to go although it does not answer: perhaps it may not be asked */
  async #goOnceItAnswers(origin, until) {
    const mine = this.going;
    const page = await answering([origin]);
    if (this.going !== mine) return;
    if (page || performance.now() > until) location.assign(`${origin}/${location.hash}`);
    else this.going = setTimeout(() => this.#goOnceItAnswers(origin, until), AGAIN_MS);
  }

  /** @param {import("./live.js").Status} status */
  #lost(status) {
    this.lost = status;
    if (this.late || !this.banner.hidden) return;
    // A master that restarts is often back before a banner can be read.
    this.late = setTimeout(() => this.#tellLost(), 1500);
  }

  async #tellLost() {
    const others = otherMasters();
    const links = others.map((page) => [" ", h("a", { href: `${page}/${location.hash}` }, page)]);
    this.#show(`${this.lost?.message ?? ""} What you see may be old. `,
      button("Try now", () => this.what.retry(), { class: "quiet small" }), links.length ? " Other masters:" : null, ...links.flat());
    while (this.lost && !this.going && others.length) {
      const page = this.lost.unreachable ? await answering(others) : "";
      if (page && this.lost && !this.going) this.#leave(page, "This master does not answer, but ", h("b", null, page), " does. ");
      else await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  #show(...children) {
    replace(this.banner, children);
    this.banner.hidden = false;
  }

  /** @param {import("./types.js").View} view @param {string} page the first part of the route */
  show(view, page) {
    document.title = `${view.title} - Croupier`;
    this.links.forEach((each, index) => {
      if (PAGES[index].path === `#/${page}`) {
        each.setAttribute("aria-current", "page");
        // A narrow window shows a part of the navigation.
        this.nav.scrollLeft = each.offsetLeft - (this.nav.clientWidth - each.offsetWidth) / 2;
      }
      else each.removeAttribute("aria-current");
    });
    this.main.setAttribute("aria-busy", "true");
    replace(this.main, view.root);
  }

  /** Say that a view could not be loaded. @param {Error} error @param {() => void} again */
  fail(error, again) {
    this.succeed();
    this.main.prepend(h("p", { class: "failure notice", role: "alert" }, error.message, " ", button("Try again", again, { class: "quiet small" })));
  }

  succeed() {
    this.main.querySelector(".failure")?.remove();
    this.main.removeAttribute("aria-busy");
  }
}

function safeOrigin(address) {
  try {
    const url = new URL(/^https?:\/\//.test(address) ? address : `${location.protocol}//${address}`);
    return url.protocol === "http:" || url.protocol === "https:" ? url.origin : "";
  } catch {
    return "";
  }
}
