// Tasks, and one of them with its output.

import { get } from "../api.js";
import { killButton } from "../actions.js";
import { agentLink, facts, frameworkLink, h, replace, roleLink, section } from "../dom.js";
import { Files } from "../parts/files.js";
import { List } from "../parts/list.js";
import { Output } from "../parts/output.js";
import { TASK_STATES, ending, hasEnded, taskState } from "../parts/states.js";
import { taskColumns } from "../parts/task_columns.js";
import { amount, clock, count, scalar, size, span } from "../text.js";

/** @returns {import("../types.js").View} */
export function tasks() {
  const list = new List({
    what: "tasks", label: "Tasks", key: (task) => `${task.framework_id}\n${task.task_id}`, columns: taskColumns(),
    empty: "No tasks are running or have ended recently.",
    filters: [{ name: "state", label: "any state", options: TASK_STATES }, { name: "min_age", label: "any age", options: ["1m", "10m", "1h", "6h", "1d"] }],
    hidden: ["framework", "role", "agent"],
  });
  return { title: "Tasks", root: section("Tasks", list.root), search: list.search, load: (signal) => list.load(signal) };
}

/** @param {string} framework @param {string} id @returns {import("../types.js").View} */
export function task(framework, id) {
  const head = h("div");
  const place = h("div");
  const files = new Files(framework, id);
  /** @type {Output | null} */
  let output = null;
  const root = h("div", null, head, place);
  const view = {
    title: `Task ${id}`, root, stop: () => output?.stop(),
    load: async (signal) => {
      const found = await get(["tasks", framework, id], {}, signal);
      replace(head, about(found, () => view.load(signal).catch(() => {})));
      if (output || found.state === "QUEUED") return;
      output = new Output(framework, id, !hasEnded(found.state));
      replace(place, section("Output", output.root), section("Files of the sandbox", files.root));
      output.start();
      files.start();
    },
    changed: (event) => event.task_id === id && event.framework_id === framework,
  };
  return view;
}

function about(task, again) {
  const command = task.shell || (task.command ?? []).join(" ");
  const isolation = task.isolation ?? {};
  const words = [isolation.namespaces && "namespaces of its own", isolation.no_network && "no network", isolation.image && `image ${isolation.image}`].filter(Boolean);
  return section(`Task ${task.task_id}`,
    hasEnded(task.state) ? null : killButton(task, again),
    h("div", { class: "columns" }, facts([
      ["Name", task.name],
      ["State", [taskState(task), " ", ending(task)]],
      ["Since", task.time_ms ? `${clock(task.time_ms)} (${span((Date.now() - task.time_ms) / 1000)})` : ""],
      ["Life", life(task)],
      ["Message", task.message],
      ["Framework", frameworkLink(task.framework_id)],
      ["Role", roleLink(task.role)],
      ["Agent", task.agent_id ? agentLink(task.agent_id) : "it waits for one"],
      ["Process", task.pid ? String(task.pid) : ""],
      ["Command", command ? h("code", null, command) : ""],
      ["Isolation", words.join(", ")],
      ["Secrets", (task.secrets ?? []).join(", ")],
      ["Labels", (task.labels ?? []).map((label) => `${label.key}=${label.value}`).join(", ")],
    ]), use(task)));
}

/** The steps of its life so far, each with the time since the one before. */
function life(task) {
  const steps = [["submitted", task.submitted_ms], ["placed", task.placed_ms], ["started", task.started_ms], ["ended", task.ended_ms]].filter(([, ms]) => ms);
  return steps.map(([name, ms], index) => {
    const before = index ? steps[index - 1][1] : null;
    return before === null ? `${name} ${clock(ms)}` : `, ${name} ${span(Math.max(0, ms - before) / 1000)} later`;
  }).join("");
}

function use(task) {
  const { limits = {}, usage, resources } = task;
  const known = usage ?? {};
  const row = (name, has, limit, used) => (has || limit || used ? h("tr", null, h("th", { scope: "row" }, name), h("td", null, has), h("td", null, limit), h("td", null, used)) : null);
  const charged = (name) => (resources.milli[name] ? scalar(name, resources.milli[name]) : "");
  const bound = (name) => (limits[name] ? scalar(name, limits[name]) : "");
  const bytes = (value) => (value ? size(value) : "");
  return h("div", { class: "scroll", role: "region", "aria-label": "Resources, limits and use", tabindex: "0" }, h("table", { class: "list narrow" },
    h("thead", null, h("tr", null, ["", "Resources", "Limit", "Used"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null,
      row("CPU", charged("cpus"), bound("cpus"), known.cpu_s ? `${span(known.cpu_s)} of CPU time` : ""),
      row("Memory", charged("mem"), bound("mem"), known.memory_peak_bytes ? `${size(known.memory_peak_bytes)} at most` : ""),
      row("Disk", charged("disk"), bound("disk"), bytes(known.disk_bytes)),
      row("Processes", "", limits.pids ? count(limits.pids) : "", known.pids_peak ? `${count(known.pids_peak)} at most` : ""),
      row("Open files", "", limits.files ? count(limits.files) : "", ""),
      row("Time", "", span(limits.max_completion_s), ""),
      row("Read", "", "", bytes(known.read_bytes)),
      row("Written", "", "", bytes(known.written_bytes)),
      Object.keys(resources.milli).filter((name) => !["cpus", "mem", "disk"].includes(name)).map((name) => row(name, charged(name), "", ""))
        .concat(Object.entries(resources.ranges ?? {}).map(([name, pairs]) => row(name, pairs.map(([a, b]) => (a === b ? a : `${a}-${b}`)).join(", "), "", ""))))),
    amount(resources) ? null : h("p", { class: "faint" }, "It asks for no resources."));
}

