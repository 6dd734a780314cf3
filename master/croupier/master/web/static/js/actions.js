// What an operator can do from the page. Each shows its dry run before it asks.

import { post } from "./api.js";
import { button, h } from "./dom.js";
import { ask, field, toast } from "./parts/dialog.js";
import { shareMoves } from "./parts/moves.js";
import { may } from "./session.js";
import { count, many } from "./text.js";

/** @param {(Node | string)[]} lines */
const list = (lines) => [h("ul", { class: "what" }, lines.map((line) => h("li", null, line)))];

/** What happens to tasks, as a dry run says. @param {any} affected @param {[string, string]} verb of one, and of several */
function tasksThat(affected, verb) {
  if (!affected?.tasks) return ["no task is affected"];
  const of = affected.frameworks.map((each) => `${count(each.tasks)} of ${each.name || each.framework_id}`);
  const named = affected.named.slice(0, NAMED).map((each) => each.task_id);
  const rest = affected.tasks - named.length;
  return [`${many(affected.tasks, "task")} ${affected.tasks === 1 ? verb[0] : verb[1]}: ${of.join(", ")}`, h("span", { class: "faint" }, `${named.join(", ")}${rest > 0 ? ` and ${count(rest)} more` : ""}`)];
}

const NAMED = 8;

/** What happens to holds and volumes. @param {any} affected */
function holdsThatEnd(affected) {
  const lines = affected?.holds ? [`${many(affected.holds, "hold")} ${affected.holds === 1 ? "ends" : "end"}`] : [];
  return affected?.volumes ? [...lines, `${many(affected.volumes, "volume")} and the files in ${affected.volumes === 1 ? "it" : "them"} are lost`] : lines;
}

const AGENT_ACTIONS = {
  drain: {
    verb: "Drain", isGrave: true, needs: (agent) => !agent.drain,
    words: (_, affected) => [...tasksThat(affected, ["ends with its grace", "end, each with its grace"]), "it gets no offers until it is reactivated"],
    done: "is draining",
  },
  deactivate: {
    verb: "Deactivate", needs: (agent) => !agent.deactivated && !agent.drain,
    words: (agent) => ["it gets no offers until it is reactivated", `${many(agent.tasks, "task")} on it keep running`],
    done: "is deactivated",
  },
  reactivate: {
    verb: "Reactivate", needs: (agent) => agent.deactivated || agent.drain,
    words: () => ["it gets offers again"],
    done: "is offered again",
  },
  gone: {
    verb: "Declare gone", isGrave: true, needs: (agent) => agent.state !== "gone",
    words: (_, affected) => [...tasksThat(affected, ["is lost for its framework", "are lost for their frameworks"]), ...holdsThatEnd(affected), "it can never return under this id"],
    done: "is gone",
  },
};

/**
 * Buttons of what the person may do to an agent.
 * @param {any} agent
 * @param {() => void} done
 */
export function agentActions(agent, done) {
  if (!may("operate-agents")) return null;
  const name = agent.hostname || agent.agent_id;
  const buttons = Object.entries(AGENT_ACTIONS).filter(([, action]) => action.needs(agent)).map(([path, action]) =>
    button(action.verb, () => {
      const grace = path === "drain" ? field("Longest grace of a task", { placeholder: "its own", name: "grace" }, "such as 30s or 10m") : null;
      const more = () => (grace?.querySelector("input")?.value ? { grace: grace.querySelector("input").value } : {});
      const send = (dry) => post(["agents", agent.agent_id, path], { dry_run: dry, ...more() });
      ask({
        title: `${action.verb} agent ${name}?`, verb: action.verb, isGrave: action.isGrave, fields: grace ? [grace] : [],
        dry: () => send(true),
        effect: (answer) => list(action.words(answer.agent, answer.affected)),
        act: () => send(false),
        done: () => { toast(`Agent ${name} ${action.done}.`); done(); },
      });
    }, { class: action.isGrave ? "danger quiet" : "quiet" }));
  return h("div", { class: "actions", role: "group", "aria-label": "Actions" }, buttons);
}

/**
 * The button that kills a task.
 * @param {any} task
 * @param {() => void} done
 */
export function killButton(task, done) {
  if (!may("kill")) return null;
  return button("Kill", () => {
    const grace = field("Grace before it is killed by force", { placeholder: "its own", name: "grace" }, "such as 30s");
    const value = () => grace.querySelector("input").value;
    const send = (dry) => post(["tasks", task.framework_id, task.task_id, "kill"], { dry_run: dry, ...(value() ? { grace: value() } : {}) });
    ask({
      title: `Kill task ${task.task_id}?`, verb: "Kill", isGrave: true, fields: [grace],
      dry: () => send(true),
      effect: (answer) => {
        const now = answer.task;
        return list([`the task is ${now.state}${now.agent_id ? ` on agent ${now.agent_id}` : ""}; its processes end`, "its framework gets the status, and may start it again"]);
      },
      act: () => send(false),
      done: () => { toast(`Task ${task.task_id} is being killed.`); done(); },
    });
  }, { class: "danger quiet" });
}

/**
 * The button that releases a hold.
 * @param {any} hold
 * @param {() => void} done
 */
export function releaseButton(hold, done) {
  if (!may("operate-agents")) return null;
  const send = (dry) => post(["holds", hold.hold_id, "release"], { dry_run: dry });
  return button("Release", () => ask({
    title: `Release ${hold.volume ? "volume" : "hold"} ${hold.hold_id}?`, verb: "Release", isGrave: true,
    dry: () => send(true),
    effect: (answer) => list(hold.volume ? ["its files are deleted"] : [`${answer.hold.unused.text || "nothing"} is offered to all`, `${many(answer.hold.tasks, "task")} in it ${answer.hold.tasks === 1 ? "runs" : "run"} on`]),
    act: () => send(false),
    done: () => { toast(`${hold.volume ? "Volume" : "Hold"} ${hold.hold_id} is released.`); done(); },
  }), { class: "danger quiet" });
}

/**
 * The button that deletes a reservation.
 * @param {any} reservation
 * @param {() => void} done
 */
export function unreserveButton(reservation, done) {
  if (!may("change-roles")) return null;
  const send = (dry) => post(["reservations", reservation.reservation_id, "delete"], { dry_run: dry });
  return button("Delete", () => ask({
    title: `Delete reservation ${reservation.reservation_id}?`, verb: "Delete", isGrave: true,
    dry: () => send(true),
    effect: () => list(["its agents are offered to all", "tasks on them run on"]),
    act: () => send(false),
    done: () => { toast(`Reservation ${reservation.reservation_id} is deleted.`); done(); },
  }), { class: "danger quiet" });
}

/**
 * The button that ends a framework. The name has to be typed.
 * @param {any} framework
 * @param {() => void} done
 */
export function teardownButton(framework, done) {
  if (!may("teardown")) return null;
  const send = (dry) => post(["frameworks", framework.framework_id, "teardown"], { dry_run: dry });
  return button("Tear down", () => ask({
    title: `Tear down framework ${framework.name || framework.framework_id}?`, verb: "Tear down", isGrave: true,
    dry: () => send(true),
    effect: (answer) => list([...tasksThat(answer.affected, ["ends", "end"]), ...holdsThatEnd(answer.affected), `${many(framework.offers, "offer")} come back`, "its id is never used again: it cannot return"]),
    act: () => send(false),
    done: () => { toast(`Framework ${framework.name || framework.framework_id} is torn down.`); done(); },
  }), { class: "danger quiet" });
}

const settingsHint = "such as cpus:8;mem:16GB; empty: none";

/**
 * Buttons that change a role's weight and quota.
 * @param {any} role
 * @param {() => void} done
 */
export function roleActions(role, done) {
  if (!may("change-roles")) return null;
  const opened = (title, fields, change) => {
    const send = (dry) => post(["roles"], { changes: [change()], dry_run: dry });
    ask({
      title, verb: "Change", fields, dry: () => send(true), effect: (answer) => shareMoves(answer),
      act: () => send(false), done: () => { toast(`Role ${role.role} is changed.`); done(); },
    });
  };
  const value = (of) => of.querySelector("input").value.trim();
  const weight = button("Weight", () => {
    const of = field("Weight", { value: String(role.weight), inputmode: "decimal", name: "weight" }, "its part beside the roles next to it; 1 by default");
    const half = field("Half-life", { value: role.half_life_s ? `${role.half_life_s / 3600}h` : "0s", name: "half_life" }, "past use counts half after this time, such as 7d; 0s: it does not count");
    opened(`Weight of ${role.role}`, [of, half], () => ({ role: role.role, weight: Number(value(of)), half_life: value(half) }));
  }, { class: "quiet small", "aria-label": `Change the weight of ${role.role}` });
  const quota = button("Quota", () => {
    const guarantee = field("Guarantee", { value: role.guarantee.text, name: "guarantee" }, settingsHint);
    const limit = field("Limit", { value: role.limit.text, name: "limit" }, settingsHint);
    opened(`Quota of ${role.role}`, [guarantee, limit], () => ({ role: role.role, guarantee: value(guarantee), limit: value(limit) }));
  }, { class: "quiet small", "aria-label": `Change the quota of ${role.role}` });
  return h("span", { class: "actions", role: "group", "aria-label": `Actions on ${role.role}` }, weight, quota);
}
