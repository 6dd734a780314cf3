// Requests to the HTTP API of the master.

import { token } from "./session.js";

const ROOT = "/api/v1";
const TIMEOUT_MS = 20_000;

/** A refusal or a failure, with the code and the message of the API. */
export class ApiError extends Error {
  /**
   * @param {number} status 0: the master cannot be reached
   * @param {string} code
   * @param {string} message
   * @param {string} leader the leader's HTTP address, if this master is a follower
   */
  constructor(status, code, message, leader = "") {
    super(message);
    this.status = status;
    this.code = code;
    this.leader = leader;
  }
}

/**
 * Return the path of a resource below the API, each part encoded.
 * @param {string[]} parts
 * @param {Record<string, any>} [query] empty values are left out
 */
export function path(parts, query) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== "" && each !== null && each !== undefined) search.append(name, String(each));
    }
  }
  const text = search.toString();
  return `${ROOT}/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** @param {Record<string, string>} [more] */
export function headers(more) {
  const secret = token();
  return { ...(secret ? { Authorization: `Bearer ${secret}` } : {}), ...more };
}

/**
 * Read an object.
 * @param {string[]} parts
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(parts, query, signal) {
  const response = await send(path(parts, query), { headers: headers(), cache: "no-cache" }, signal);
  return response.json();
}

/**
 * Change something, or ask what a change would do.
 * @param {string[]} parts
 * @param {Record<string, any>} body
 * @returns {Promise<any>}
 */
export async function post(parts, body) {
  const response = await send(path(parts), {
    method: "POST",
    headers: headers({ "Content-Type": "application/json", "X-Croupier": "1" }),
    body: JSON.stringify(body),
  });
  return response.json();
}

/**
 * Send a request and return the response if it succeeded.
 * @param {string} url
 * @param {RequestInit} options
 * @param {AbortSignal} [signal]
 * @param {number} [timeout] milliseconds until the response begins and ends; 0: none
 * @returns {Promise<Response>}
 * @throws {ApiError}
 */
export async function send(url, options, signal, timeout = TIMEOUT_MS) {
  const limits = timeout ? [AbortSignal.timeout(timeout)] : [];
  if (signal) limits.push(signal);
  let response;
  try {
    response = await fetch(url, { ...options, signal: limits.length ? AbortSignal.any(limits) : null, redirect: "error" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The master does not answer.");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

/** @param {Response} response */
async function failure(response) {
  let answer = {};
  try {
    answer = await response.json();
  } catch {
    // Not JSON: the status has to do.
  }
  const error = answer.error ?? {};
  const message = error.message || `The master answered ${response.status}.`;
  return new ApiError(response.status, error.code ?? "", message, answer.leader_http ?? error.leader_http ?? "");
}
