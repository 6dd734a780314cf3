// What happened in the cluster, as it happens; preemptions are a part of it.

import { get } from "../api.js";
import { button, h, section } from "../dom.js";
import { recent, setEvents } from "../feed.js";
import { EventList } from "../parts/events.js";
import { current, setQuery } from "../router.js";

const MOST = 500;

/** @param {{ title: string, empty: string, isShown?: (event: import("../types.js").ClusterEvent) => boolean }} what @returns {import("../types.js").View} */
function view({ title, empty, isShown = () => true }) {
  const list = new EventList(MOST, title);
  list.empty.textContent = empty;
  let isPaused = false;
  const search = /** @type {HTMLInputElement} */ (h("input", {
    type: "search", placeholder: "Search events  ( / )", "aria-label": "Search events", value: current().query.get("text") ?? "",
    oninput: () => { setQuery({ text: search.value }); draw(); },
  }));
  const matches = (event) => {
    const words = search.value.toLowerCase();
    return isShown(event) && (!words || [event.kind, event.text, event.agent_id, event.framework_id, event.task_id, event.role].some((text) => text?.toLowerCase().includes(words)));
  };
  const draw = () => list.replace(recent().filter(matches));
  const pause = button("Pause", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    if (!isPaused) draw();
  }, { "aria-pressed": "false" });
  return {
    title, search, root: section(title, h("div", { class: "filters" }, search, pause), list.box),
    load: async (signal) => {
      if (isPaused) return;
      if (recent().length < 2) {
        const found = await get(["events"], { limit: MOST }, signal);
        setEvents(found.items);
      }
      draw();
    },
    changed: (event) => {
      if (!isPaused && matches(event)) list.add([event]);
      return false;
    },
  };
}

export const events = () => view({ title: "Events", empty: "No recent event matches." });
export const preemptions = () => view({
  title: "Preemptions", empty: "No task was preempted recently: nothing held more than it was due while another waited.",
  isShown: (event) => event.kind.includes("preempt"),
});
