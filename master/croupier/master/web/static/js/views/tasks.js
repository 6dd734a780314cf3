// Tasks, and one of them with its output.

import { get } from "../api.js";
import { killButton } from "../actions.js";
import { agentLink, facts, frameworkLink, h, replace, roleLink, section, taskLink } from "../dom.js";
import { Files } from "../parts/files.js";
import { List } from "../parts/list.js";
import { Output } from "../parts/output.js";
import { FAILURES, TASK_STATES, ending, hasEnded, hasFailed, taskState } from "../parts/states.js";
import { taskColumns } from "../parts/task_columns.js";
import { amount, clock, count, scalar, size, span } from "../text.js";

/** @returns {import("../types.js").View} */
export function tasks() {
  const list = new List({
    what: "tasks", label: "Tasks", key: (task) => `${task.framework_id}\n${task.task_id}`, columns: taskColumns(),
    empty: "No tasks are running or have ended recently.",
    filters: [{ name: "state", label: "any state", options: [[FAILURES.join(","), "failures"], ...TASK_STATES] }, { name: "min_age", label: "any age", options: ["1m", "10m", "1h", "6h", "1d"] }],
    hidden: ["framework", "role", "agent"],
  });
  return { title: "Tasks", root: section("Tasks", list.root), search: list.search, load: (signal) => list.load(signal) };
}

/** @param {string} framework @param {string} id @returns {import("../types.js").View} */
export function task(framework, id) {
  const head = h("div");
  const details = h("div");
  const place = ["tasks", framework, id];
  const files = new Files(framework, id);
  /** @type {Output | null} */
  let output = null;
  const root = h("div", null, head, details);
  const view = {
    title: `Task ${id}`, root, stop: () => output?.stop(),
    load: async (signal) => {
      const found = await get(["tasks", framework, id], {}, signal);
      const isLive = !hasEnded(found.state) && found.state !== "QUEUED" && !found.executor_id;
      // A task runs on when its agent cannot be asked.
      const live = isLive ? await get([...place, "use"], {}, signal).catch((error) => ({ problem: error.message })) : null;
      replace(head, about(found, () => view.load(signal).catch(() => {})));
      replace(details, detailsOf(found, live));
      if (output || found.state === "QUEUED") return;
      output = new Output(framework, id, !hasEnded(found.state), hasFailed(found.state));
      const written = section("Output", output.root);
      // What a failed task wrote last says more than what it was.
      if (hasFailed(found.state)) details.before(written);
      else details.after(written);
      root.append(section("Files of the sandbox", files.root));
      output.start();
      files.start();
    },
    changed: (event) => event.task_id === id && event.framework_id === framework,
  };
  return view;
}

function about(task, again) {
  return section(`Task ${task.task_id}`,
    h("p", { class: "lead" }, taskState(task), " ", ending(task), task.message ? h("span", { class: "faint" }, ` ${task.message}`) : null),
    hasEnded(task.state) ? null : killButton(task, again));
}

function detailsOf(task, live) {
  const command = task.shell || (task.command ?? []).join(" ");
  const isolation = task.isolation ?? {};
  const words = [isolation.namespaces && "namespaces of its own", isolation.no_network && "no network", isolation.image && `image ${isolation.image}`].filter(Boolean);
  return section("Details",
    h("div", { class: "columns" }, facts([
      ["Name", task.name],
      ["Since", task.time_ms ? `${clock(task.time_ms)} (${span((Date.now() - task.time_ms) / 1000)})` : ""],
      ["Life", life(task)],
      ["Framework", frameworkLink(task.framework_id, task.framework_name)],
      ["Role", roleLink(task.role)],
      ["Agent", task.agent_id ? agentLink(task.agent_id, task.hostname) : "it waits for one"],
      ["Process", task.pid ? String(task.pid) : ""],
      ["Executor", task.executor_id ? taskLink(task.framework_id, task.executor_id) : ""],
      ["Command", command ? h("code", null, command) : ""],
      ["Group", task.group ? `${task.group.group_id}, its ${task.group.part}` : ""],
      ["Gang", task.gang ? `${task.gang.gang_id}, rank ${task.gang.rank} of ${task.gang.size}` : ""],
      ["Hold", task.hold_id],
      ["Requeued", task.requeues ? `${task.requeues} × after preemption` : ""],
      ["Volumes", (task.volumes ?? []).map((mount) => `${mount.volume_id} at ${mount.path}`).join(", ")],
      ["Isolation", words.join(", ")],
      ["Secrets", (task.secrets ?? []).join(", ")],
      ["Labels", (task.labels ?? []).map((label) => `${label.key}=${label.value}`).join(", ")],
    ]), use(task, live)));
}

/** The steps of its life so far, each with the time since the one before. */
function life(task) {
  const steps = [["submitted", task.submitted_ms], ["placed", task.placed_ms], ["started", task.started_ms], ["ended", task.ended_ms]].filter(([, ms]) => ms);
  return steps.map(([name, ms], index) => {
    const before = index ? steps[index - 1][1] : null;
    return before === null ? `${name} ${clock(ms)}` : `, ${name} ${span(Math.max(0, ms - before) / 1000)} later`;
  }).join("");
}

/** @param {any} task @param {any} live its use so far, and the limits that its agent enforces; null: it does not run */
function use(task, live) {
  if (task.executor_id) return h("p", { class: "faint" }, "Its limits and its use are those of its executor.");
  const { resources } = task;
  const limits = live?.limits ?? task.limits ?? {};
  const known = live?.usage ?? task.usage ?? {};
  const unknown = live && !live.usage ? live.problem ?? "its agent does not measure tasks" : "";
  const row = (name, has, limit, used) => (has || limit || used ? h("tr", null, h("th", { scope: "row" }, name), h("td", null, has), h("td", null, limit), h("td", null, used)) : null);
  const charged = (name) => (resources.milli[name] ? scalar(name, resources.milli[name]) : "");
  const bound = (name) => (limits[name] ? scalar(name, limits[name]) : "");
  const bytes = (value) => (value ? size(value) : "");
  return h("div", { class: "scroll", role: "region", "aria-label": "Resources, limits and use", tabindex: "0" }, h("table", { class: "list narrow" },
    h("thead", null, h("tr", null, ["", "Resources", "Limit", live ? "Used so far" : "Used"].map((name) => h("th", { scope: "col" }, name)))),
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
    unknown ? h("p", { class: "faint" }, `Its use is unknown: ${unknown}.`) : null,
    live && !Object.values(limits).some(Boolean) ? h("p", { class: "faint" }, "Its agent enforces no limits.") : null,
    amount(resources) ? null : h("p", { class: "faint" }, "It asks for no resources."));
}

