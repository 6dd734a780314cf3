// Why a framework gets no more offers, in plain words, with what would help.

import { agentLink, h, roleLink } from "../dom.js";
import { amount, many, percent, span } from "../text.js";

/** What each cause of the master means, and what helps. */
const CAUSES = {
  "filtered": ["It declined these agents, or did not answer their offers, a short time ago.", "It can revive, or decline for a shorter time."],
  "unanswered offers": ["It has left offers unanswered.", "It has to accept or decline offers within 5 s."],
  "does not fit": ["What is free is too small for the units that it wants.", "Demand smaller units, or add larger agents."],
  "below the minimum useful amount": ["What is free is less than a useful amount.", "Declare a demand: it is offered even small amounts."],
  "constraint": ["The agents do not meet its constraints.", "Relax the demand's constraints, or add agents that meet them."],
  "budget": ["A role has used up its budget for this period.", "Wait for the next period, or raise the budget."],
  "limit": ["A role has reached its limit.", "Raise the limit, or wait until tasks of the role end."],
  "guarantee": ["Another role is below its guarantee and comes first.", ""],
  "in use": ["Everything that it could use is in use or offered.", "Wait for tasks to end or offers to be answered, or add agents."],
  "reserved": ["Agents are reserved for another role.", "Tasks with a time that ends before may run on them."],
  "gang": ["A gang waits until all of its tasks fit at once.", "After 30 s room is reserved for it, as tasks end."],
  "earmarked": ["What is free is reserved for another framework.", "What that leaves is offered again."],
  "scarce": ["Agents with a scarce resource are kept for those who ask for it.", "Declare a demand for the scarce resource."],
  "outranked": ["Others hold less of what they are due, so they come first.", "A greater weight of its role would change that."],
  "held for another": ["What is free there is held for another framework or role.", "An operator can release the hold."],
  "minimum run time": ["Tasks that could be ended for it have to run for their minimum time first.", "Wait for it, or set a shorter one for their role."],
  "its volumes": ["Its queued tasks need the agent of their volumes.", "Wait for that agent, or make room on it."],
  "past use": ["Its role has used more or less than its share lately, which changes its weight.", "That is forgotten by and by; the half-life of the role says how fast."],
  "its reservations": ["Agents are reserved for its role.", "It alone is offered them once the reservation begins."],
  "its holds": ["Its holds count in its share, used or not.", "It can use or release them."],
  "suppressed": ["The framework suppressed its offers.", "It has to revive."],
  "disconnected": ["The framework is not connected.", "Start it again, or repair its connection."],
  "demand is met": ["It has all that it asked for.", "It has to declare more demand to get more."],
  "no agents": ["No agent takes tasks.", "Start agents, or reactivate them."],
  "agent is being drained": ["An operator drains the agents.", "Reactivate them to offer them again."],
  "agent is deactivated": ["An operator withholds the agents.", "Reactivate them to offer them again."],
  "agent is unhealthy": ["The agents report a problem.", "Repair what they report; they are offered again once they are healthy."],
  "agent is away": ["The agents are not connected.", "Start them, or repair their connection."],
};

/** @param {any} found the answer of `GET /api/v1/frameworks/ID/why` */
export function why(found) {
  const { framework, reasons, policy } = found;
  const shares = policy === "drf" || !policy
    ? `It holds ${percent(framework.share)} of the cluster and is entitled to ${percent(framework.entitlement)} if all roles want as much as they can get. `
    : "";
  const hosts = found.lined_up_hosts;
  const lined = framework.lined_up
    ? `${framework.lined_up} of its ${many(framework.queued, "queued task")} wait lined up at ${hosts.length === 1 ? hosts[0] : many(hosts.length, "agent")}, behind tasks like them. `
    : "";
  const lead = reasons.length ? "It gets nothing more because:" : "Nothing keeps it from more.";
  return h("div", { class: "why" }, h("p", null, shares, lined, lead),
    h("ol", null, reasons.map((reason) => h("li", null, cause(reason, framework.roles.length > 1)))),
    found.forecasts.length ? [h("h3", null, "Expected start"), h("ul", null, found.forecasts.map((each) => h("li", null, forecast(each))))] : null);
}

/** When a task may start, in words. */
function forecast({ unit, role, median_s: median, late_s: late, problem }) {
  const what = `${amount(unit)} in role ${role}: `;
  if (problem) return `${what}cannot be foretold: ${problem}`;
  return `${what}${median ? `in about ${span(median)}` : "at once"}${late ? `, and by ${span(late)} in 9 of 10 rehearsals` : ""}`;
}

function cause(reason, showsRole) {
  const [meaning, advice] = CAUSES[reason.cause] ?? [reason.cause, ""];
  const about = reason.about_agent_id ? agentLink(reason.about_agent_id) : reason.about_role ? roleLink(reason.about_role) : null;
  return [h("strong", null, meaning),
    reason.agents ? ` (${many(reason.agents, "agent")}${showsRole ? `, role ${reason.role}` : ""})` : showsRole ? ` (role ${reason.role})` : "",
    h("div", { class: "detail" }, reason.detail, about ? [" ", about] : null),
    advice ? h("div", { class: "advice" }, advice) : null].flat(2);
}
