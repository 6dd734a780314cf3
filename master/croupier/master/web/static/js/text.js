// Text for people: amounts, times, shares, and untrusted text made visible.

const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const UNSAFE_LINE = /[\t\n]/g;

/**
 * Return text of the cluster as one line without characters that hide or reorder others: they become
 * `‹U+202E›`.
 * @param {unknown} text
 * @returns {string}
 */
export function visible(text) {
  return visibleLines(text).replace(UNSAFE_LINE, picture);
}

/**
 * As `visible`, but keeps tabs and ends of lines: for output.
 * @param {unknown} text
 * @returns {string}
 */
export function visibleLines(text) {
  return String(text ?? "").replace(UNSAFE, picture);
}

/** @param {string} character */
function picture(character) {
  return `\u2039U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u203a`;
}

const ESCAPES = /\u001b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[()][0-9A-Za-z]|[=>78cDEHMNOZ])/g;

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/**
 * Return output without the escape sequences of terminals; other control characters become dots, and
 * what hides or reorders text is made visible.
 * @param {string} text
 * @returns {string}
 */
export function plainOutput(text) {
  const lines = text.replace(ESCAPES, "").replace(/\r\n/g, "\n").replace(CONTROL, "\u00b7");
  return visibleLines(lines);
}

const MIB_NAMES = new Set(["mem", "disk"]);

/**
 * Return an amount of one resource.
 * @param {string} name
 * @param {number} milli thousandths; of a MiB for mem and disk
 * @returns {string}
 */
export function scalar(name, milli) {
  return MIB_NAMES.has(name) ? size(milli / 1000 * 2 ** 20) : short(milli / 1000);
}

/**
 * @param {number} bytes
 * @returns {string}
 */
export function size(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${short(bytes)} ${units[unit]}`;
}

/**
 * Return a number with three significant digits, and all digits before the point.
 * @param {number} number
 * @returns {string}
 */
export function short(number) {
  const digits = Math.abs(number) >= 100 ? 0 : Math.abs(number) >= 10 ? 1 : 2;
  return number.toLocaleString("en-US", { maximumFractionDigits: digits });
}

/**
 * @param {number} number
 * @returns {string}
 */
export function count(number) {
  return Number(number ?? 0).toLocaleString("en-US");
}

/**
 * Return `1 task`, `2 tasks`.
 * @param {number} number
 * @param {string} noun
 * @returns {string}
 */
export function many(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/**
 * @param {number} share from 0 to 1
 * @returns {string}
 */
export function percent(share) {
  const value = share * 100;
  const digits = value > 0 && value < 1 ? 2 : value < 10 ? 1 : 0;
  return `${value.toFixed(digits).replace(/\.0+$/, "")} %`;
}

/**
 * Return a span of time: `45 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
 * @param {number | null | undefined} seconds
 * @returns {string}
 */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds > 0 && seconds < 10) return `${seconds.toFixed(1).replace(".0", "")} s`;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return joined(whole, 60, "min", 1, "s");
  if (whole < 86400) return joined(whole, 3600, "h", 60, "min");
  return joined(whole, 86400, "d", 3600, "h");
}

function joined(whole, big, bigName, small, smallName) {
  const rest = Math.floor(whole % big / small);
  return `${Math.floor(whole / big)} ${bigName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

/**
 * Return the time of day, with the date unless it is today.
 * @param {number} ms since 1970
 * @returns {string}
 */
export function clock(ms) {
  const date = new Date(ms);
  if (!ms || Number.isNaN(date.getTime())) return "";
  const day = (/** @type {Date} */ of) => of.toLocaleDateString("sv-SE");
  const time = date.toLocaleTimeString("sv-SE");
  return day(date) === day(new Date()) ? time : `${day(date)} ${time}`;
}

/**
 * Return an amount of resources for people: `4 cpus, 8 GB mem`.
 * @param {import("./types.js").Amount | null | undefined} amount
 * @returns {string}
 */
export function amount(amount) {
  if (!amount) return "";
  const scalars = Object.entries(amount.milli ?? {}).map(([name, milli]) => `${scalar(name, milli)} ${name}`);
  const ranges = Object.entries(amount.ranges ?? {}).map(
    ([name, pairs]) => `${name} ${pairs.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join(", ")}`,
  );
  const sets = Object.entries(amount.sets ?? {}).map(([name, items]) => `${name} {${items.join(", ")}}`);
  return visible([...scalars, ...ranges, ...sets].join(", "));
}
