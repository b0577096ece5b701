// Requests to the gateway. Paths are relative, so the page works behind a proxy that serves it under a path.

const KEY = "gateway-key";

export class Refused extends Error {}
export class Failed extends Error {}
/** The gateway did not respond. */
export class Unanswered extends Failed {
  constructor() {
    super("the gateway does not respond");
  }
}

export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

export function keepKey(key) {
  sessionStorage.setItem(KEY, key);
}

export function forgetKey() {
  sessionStorage.removeItem(KEY);
}

const known = new Map(); // the last reply of each path: its ETag and its value

/** The JSON at `path` below /api, the time in `gateway-time`, and whether the JSON has changed since the last request. */
export async function ask(path, query = "") {
  const headers = {};
  const key = sessionStorage.getItem(KEY);
  if (key !== null) headers.Authorization = `Bearer ${key}`;
  const before = known.get(path);
  if (before) headers["If-None-Match"] = before.tag;
  let reply;
  try {
    // "omit": the browser must not show its own password dialog when a key is missing
    reply = await fetch(`../api/${path}${query}`, { headers, credentials: "omit", cache: "no-store" });
  } catch {
    throw new Unanswered();
  }
  const time = Number(reply.headers.get("gateway-time"));
  if (reply.status === 304) return { value: before.value, time, changed: false };
  if (reply.status === 401 || reply.status === 403) throw new Refused((await reply.text()).trim());
  if (!reply.ok) throw new Failed(await why(reply));
  const value = await reply.json();
  const tag = reply.headers.get("ETag");
  if (tag !== null) known.set(path, { tag, value });
  return { value, time, changed: true };
}

/** The errors of a form: a message for each invalid field. */
export class Wrong extends Error {
  constructor(errors) {
    super(Object.values(errors).join("; "));
    this.errors = errors;
  }
}

/** Post `value` to `path` below /api, and return the JSON of the response. `signal` cancels the request. */
export async function post(path, value, signal) {
  const headers = { "Content-Type": "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key !== null) headers.Authorization = `Bearer ${key}`;
  let reply;
  try {
    reply = await fetch(`../api/${path}`, { method: "POST", headers, body: JSON.stringify(value), credentials: "omit", cache: "no-store", signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unanswered();
  }
  if (reply.status === 401 || reply.status === 403) throw new Refused((await reply.text()).trim());
  if (reply.status === 422) {
    const found = await reply.json();
    const { detail } = found;
    throw found.errors ? new Wrong(found.errors) : new Failed(Array.isArray(detail) ? detail.map((each) => each.msg).join("; ") : String(detail));
  }
  if (!reply.ok) throw new Failed(await why(reply));
  return { value: await reply.json() };
}

async function why(reply) {
  const text = await reply.text();
  try {
    const { detail } = JSON.parse(text);
    if (typeof detail === "string") return detail;
  } catch {
    // not JSON: show the text
  }
  return text.trim() || `the gateway answered ${reply.status}`;
}
