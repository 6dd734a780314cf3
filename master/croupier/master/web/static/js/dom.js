// Elements of the page. Rule: text of the cluster reaches the document by `textContent` only, and
// every string that an element is given is made visible first.

import { visible } from "./text.js";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Make an element. `props`: `class`, `on…` listeners, `style` (an object, set through the CSSOM),
 * and attributes; null, undefined and false leave one out.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  fill(element, children.flat());
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element of SVG.
 * @param {string} tag
 * @param {Record<string, any>} props
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props)) set(element, name, value);
  fill(element, children);
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "class") element.setAttribute("class", value);
  else if (name === "style") for (const [key, of] of Object.entries(value)) element.style.setProperty(key, of);
  else if (name === "value") element.value = value;
  else element.setAttribute(name, value === true ? "" : attributeText(name, value));
}

// Addresses are made by `href` below and by the API; all else may be text of the cluster.
function attributeText(name, value) {
  return name === "href" || name === "src" || name === "download" ? String(value) : visible(value);
}

/**
 * Append children; strings become text.
 * @param {Element} element
 * @param {Child[]} children
 */
export function fill(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : visible(child));
  }
}

/**
 * Replace all children. The focus stays on what has the same words as before, and details stay open.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function replace(element, ...children) {
  const active = document.activeElement;
  const words = active && active !== element && element.contains(active) ? active.textContent : null;
  const isOpen = element.querySelector("details[open]") !== null;
  element.replaceChildren();
  fill(element, children.flat());
  if (isOpen) element.querySelector("details")?.setAttribute("open", "");
  if (words === null) return;
  const same = [...element.querySelectorAll("a, button, summary")].find((each) => each.textContent === words);
  /** @type {HTMLElement | undefined} */ (same)?.focus({ preventScroll: true });
}

/**
 * Return the hash route of parts and parameters.
 * @param {string[]} parts
 * @param {Record<string, any>} [query]
 * @returns {string}
 */
export function href(parts, query) {
  const path = parts.map((part) => encodeURIComponent(part)).join("/");
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value);
  const search = new URLSearchParams(pairs).toString();
  return `#/${path}${search ? `?${search}` : ""}`;
}

/**
 * A link to a view of the page.
 * @param {Child} text
 * @param {string[]} parts
 * @param {Record<string, any>} [query]
 * @param {Record<string, any>} [props]
 */
export function link(text, parts, query, props) {
  return h("a", { ...props, href: href(parts, query) }, text);
}

/** @param {string | null | undefined} id @param {string} [hostname] */
export const agentLink = (id, hostname = "") => (id ? link(hostname || id, ["agents", id], {}, { class: "id", title: id }) : h("span", { class: "faint" }, "none"));
/** @param {string} id @param {string} [name] */
export const frameworkLink = (id, name) => (id ? link(name || id, ["frameworks", id], {}, { class: "id", title: id }) : "");
/** @param {string} framework @param {string} id */
export const taskLink = (framework, id) => link(id, ["tasks", framework, id], {}, { class: "id" });
/** @param {string | null | undefined} role */
export const roleLink = (role) => (role ? link(role, ["roles"], { role }) : "");

/**
 * A button.
 * @param {string} text
 * @param {() => void} onclick
 * @param {Record<string, any>} [props]
 */
export function button(text, onclick, props) {
  return h("button", { type: "button", ...props, onclick }, text);
}

/**
 * A list of terms with their values; rows without a value are left out.
 * @param {[string, Child | Child[]][]} rows
 */
export function facts(rows) {
  const kept = rows.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return h("dl", { class: "facts" }, kept.map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))));
}

/**
 * A section with a heading.
 * @param {string} title
 * @param {...(Child | Child[])} children
 */
export function section(title, ...children) {
  return h("section", { class: "card" }, h("h2", null, title), ...children);
}
