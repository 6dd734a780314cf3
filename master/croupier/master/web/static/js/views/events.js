// What happened in the cluster, as it happens; preemptions are a part of it.

import { button, h, section } from "../dom.js";
import { hasEvents, pastEvents } from "../feed.js";
import { EventList, KINDS, isOf } from "../parts/events.js";
import { current, setQuery } from "../router.js";

const MOST = 500;
const WORDS = ["problem", ...new Set(KINDS.map((kind) => kind.split("-")[0])), ...KINDS];

/** @param {{ title: string, empty: string, only?: string }} what `only`: the kind; without it a person chooses @returns {import("../types.js").View} */
function view({ title, empty, only = "" }) {
  const list = new EventList(MOST, title);
  list.empty.textContent = empty;
  let isPaused = false;
  /** @type {import("../types.js").ClusterEvent[]} */
  let past = [];
  /** The kind of `past`. @type {string | null} */
  let pastKind = null;
  const kind = () => only || (current().query.get("kind") ?? "");
  const search = /** @type {HTMLInputElement} */ (h("input", {
    type: "search", placeholder: "Search events  ( / )", "aria-label": "Search events", value: current().query.get("text") ?? "",
    oninput: () => { setQuery({ text: search.value }); draw(); },
  }));
  const choice = only ? null : /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Kind of events", onchange: () => {
    setQuery({ kind: choice?.value ?? "" });
    load(new AbortController().signal).catch((error) => { list.empty.textContent = error.message; });
  } }, ["", ...WORDS].map((each) => h("option", { value: each, selected: each === kind() }, each === "problem" ? "problems" : each || "any kind"))));
  const matches = (event) => {
    const words = search.value.toLowerCase();
    return (!kind() || isOf(event.kind, kind()))
      && (!words || [event.kind, event.text, event.agent_id, event.framework_id, event.task_id, event.role].some((text) => text?.toLowerCase().includes(words)));
  };
  const draw = () => list.replace(past.filter(matches));
  const pause = button("Pause", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    if (!isPaused) draw();
  }, { "aria-pressed": "false" });
  const load = async (/** @type {AbortSignal} */ signal) => {
    if (isPaused) return;
    const asked = kind();
    if (pastKind !== asked || !hasEvents()) {
      const found = await pastEvents({ limit: MOST, kind: asked }, signal);
      if (asked !== kind()) return;
      past = found;
      pastKind = asked;
    }
    draw();
  };
  return {
    title, search, root: section(title, h("div", { class: "filters" }, search, choice, pause), list.box), load,
    changed: (event) => {
      past = [...past.slice(1 - MOST), event];
      if (!isPaused && matches(event)) list.add([event]);
      return false;
    },
  };
}

export const events = () => view({ title: "Events", empty: "No recent event matches." });
export const preemptions = () => view({
  title: "Preemptions", empty: "No task was preempted recently: nothing held more than it was due while another waited.", only: "preemption",
});
