// The last hour, as `GET /api/v1/history` gives it, as lines of a chart.

/**
 * The used part of each resource.
 * @param {any} history
 * @returns {import("./chart.js").Series}
 */
export function usedSeries(history) {
  return { times: times(history), lines: lines(history.used) };
}

/**
 * The shares of the largest roles, and of the others together.
 * @param {any} history
 * @returns {import("./chart.js").Series}
 */
export function shareSeries(history) {
  const named = lines(history.shares);
  const others = history.others ? lines({ others: history.others }) : [];
  return { times: times(history), lines: [...named, ...others] };
}

function times(history) {
  return (history.times_ms ?? []).map((ms) => ms / 1000);
}

function lines(columns) {
  return Object.entries(columns ?? {}).map(([name, values]) => ({
    name, values: values.map((/** @type {number | null} */ value) => (value === null ? null : value / 1000)),
  }));
}
