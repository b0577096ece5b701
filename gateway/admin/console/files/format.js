// Formats numbers and times for display.

export const NONE = "–";

export function rate(perSecond) {
  if (perSecond === null) return NONE;
  if (perSecond === 0) return "0/s";
  if (perSecond < 0.1) return "<0.1/s";
  if (perSecond < 10) return `${perSecond.toFixed(1)}/s`;
  if (perSecond < 1000) return `${Math.round(perSecond)}/s`;
  return `${(perSecond / 1000).toFixed(1)}k/s`;
}

export function share(part, whole) {
  if (!whole) return NONE;
  if (!part) return "0 %";
  const percent = (100 * part) / whole;
  return percent < 0.1 ? "<0.1 %" : `${percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
}

export function seconds(value) {
  if (value === null) return NONE;
  if (value === 0) return "0 ms";
  if (value < 5e-6) return "<0.01 ms";
  if (value < 0.001) return `${(1000 * value).toFixed(2)} ms`;
  if (value < 0.1) return `${(1000 * value).toFixed(1)} ms`;
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  return value < 10 ? `${value.toFixed(2)} s` : `${Math.round(value)} s`;
}

export function count(value) {
  return value.toLocaleString("en-US");
}

export function shortened(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

/** A time in the user's time zone, with its date unless it is today. */
export function moment(iso) {
  const at = new Date(iso);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? time(iso) : dateTime(iso);
}

export function dateTime(iso) {
  return new Date(iso).toLocaleString(undefined, { hourCycle: "h23" });
}

export function time(iso) {
  return new Date(iso).toLocaleTimeString(undefined, { hourCycle: "h23" });
}

/** The conditions of a route in one line. */
export function conditions(match) {
  const { model, ...others } = match;
  const parts = Object.entries(others).map(
    ([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`,
  );
  if (model !== undefined) parts.unshift(String(model));
  return parts.length ? parts.join(", ") : "every request";
}

/** The level of a request's badge: a caller's error is neither green nor red, because the operator does not need to act. */
export const levelOf = ({ fault }) => (fault === "server" ? "down" : fault ? "" : "ok");
