// The page: shows the view of the route, and keeps it up to date.
// Rule: a view is loaded again at most every two seconds, however much happens.

import { ApiError, get } from "./api.js";
import { forgetEvents, remember, setOverview } from "./feed.js";
import { Live } from "./live.js";
import { current } from "./router.js";
import { setIdentity, token } from "./session.js";
import { Shell } from "./shell.js";
import { applyTheme } from "./theme.js";
import { agent, agents } from "./views/agents.js";
import { events, preemptions } from "./views/events.js";
import { fit } from "./views/fit.js";
import { framework, frameworks } from "./views/frameworks.js";
import { holds } from "./views/holds.js";
import { masters } from "./views/masters.js";
import { offers } from "./views/offers.js";
import { overview } from "./views/overview.js";
import { reservations } from "./views/reservations.js";
import { roles } from "./views/roles.js";
import { signInView } from "./views/signin.js";
import { task, tasks } from "./views/tasks.js";
import { usage } from "./views/usage.js";

const SOON_MS = 2000;
// Ages and progress move although nothing happens.
const STALE_MS = 10_000;

/** @type {Record<string, (...parts: string[]) => import("./types.js").View>} */
const VIEWS = {
  overview, roles, frameworks: (id) => (id ? framework(id) : frameworks()), tasks: (of, id) => (id ? task(of, id) : tasks()),
  agents: (id) => (id ? agent(id) : agents()), offers, holds, reservations, fit, usage, preemptions, events, masters,
};

/** @type {import("./types.js").View | null} */
let view = null;
let loading = new AbortController();
let loadedAt = 0;
let soon = 0;
/** The route that is shown; null: none. @type {string | null} */
let place = null;

const shell = new Shell({
  search: () => view?.search ?? null,
  signedOut: () => { live.stop(); signIn("You are signed out."); },
  retry: () => live.retry(),
});
const live = new Live({ status: onStatus, message: onMessage });

function route() {
  const { parts } = current();
  if (location.hash === place) return;
  place = location.hash;
  const name = parts[0] ?? "overview";
  const make = VIEWS[name] ?? overview;
  open(make(...parts.slice(1)), VIEWS[name] ? name : "overview");
  window.scrollTo(0, 0);
}

/** @param {import("./types.js").View} next @param {string} name */
function open(next, name) {
  const isFirst = view === null;
  view?.stop?.();
  view = next;
  shell.show(next, name);
  if (!isFirst) shell.main.focus({ preventScroll: true });
  load();
}

async function load() {
  clearTimeout(soon);
  soon = 0;
  // What a person has a dialog about stays as it is.
  if (document.querySelector("dialog[open]")) {
    soon = setTimeout(load, SOON_MS);
    return;
  }
  loading.abort();
  const stopping = (loading = new AbortController());
  const shown = view;
  try {
    await shown?.load(stopping.signal);
    if (!stopping.signal.aborted) shell.succeed();
  } catch (error) {
    if (!stopping.signal.aborted) failed(error);
  } finally {
    loadedAt = performance.now();
  }
}

function failed(error) {
  if (error instanceof ApiError && error.status === 401) signIn(token() ? error.message : "");
  else if (error instanceof ApiError && error.leader) onStatus({ state: "follower", leader: error.leader });
  else shell.fail(error, load);
}

/** Load the view again, at once or when its time has come. */
function reload() {
  if (soon || !view || document.hidden) return;
  soon = setTimeout(load, Math.max(50, loadedAt + SOON_MS - performance.now()));
}

/** @param {string} message */
function signIn(message) {
  place = null;
  live.stop();
  setIdentity(null);
  shell.tellIdentity();
  shell.tellStatus({ state: "signed-out" });
  open(signInView(message, enter), "");
}

/** Ask who we are, show the route's view, and connect. */
async function begin() {
  setIdentity(await get(["whoami"]));
  shell.tellIdentity();
  place = null;
  route();
  live.start();
}

/** Begin after a person gave a token. A follower cannot check it: the leader's page asks for it again. */
async function enter() {
  try {
    await begin();
  } catch (error) {
    if (error instanceof ApiError && error.leader) onStatus({ state: "follower", leader: error.leader });
    throw error;
  }
}

/** @param {import("./live.js").Status} status */
function onStatus(status) {
  shell.tellStatus(status);
  if (status.state === "signed-out") signIn(status.message ?? "");
  if (status.state === "live") refreshed();
}

let wasLive = false;
/** After a gap everything may be different. */
function refreshed() {
  if (wasLive) reload();
  wasLive = true;
}

/** @param {string} type @param {any} data */
function onMessage(type, data) {
  if (type === "overview") {
    setOverview(data);
    view?.overview?.(data);
    if (view && !view.overview) reload();
  } else if (type === "cluster" && remember(data)) {
    if (!view?.changed || view.changed(data)) reload();
  } else if (type === "reset") {
    forgetEvents();
    reload();
  }
}

applyTheme();
window.addEventListener("hashchange", route);
// The address of a view is in the hash, so the link must not follow its own.
document.querySelector("a.skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  shell.main.focus();
});
setInterval(() => { if (loadedAt && performance.now() - loadedAt > STALE_MS) reload(); }, 1000);
begin().catch((error) => {
  // A master that does not answer, or follows, is asked again by the live connection.
  if (error instanceof ApiError && error.status !== 401) {
    if (error.status === 503) open(masters(), "masters");
    failed(error);
    setIdentity(null);
    waitForMaster();
  } else failed(error);
});

function waitForMaster() {
  setTimeout(() => begin().catch((error) => { failed(error); if (error.status !== 401) waitForMaster(); }), 2000 + Math.random() * 2000);
}
