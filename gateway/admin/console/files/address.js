// The state of the page, in the fragment of its address (`#/routes?filter=abc&sort=-rate`), so users can share it.

export function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: path || "overview", parameters: new URLSearchParams(query ?? "") };
}

/** The address of a view with these parameters, without the empty ones. */
export function to(view, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value) query.set(name, value);
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

/** Change parameters of the current view, without a new history entry. */
export function change(parameters) {
  const { view, parameters: now } = read();
  history.replaceState(null, "", to(view, { ...Object.fromEntries(now), ...parameters }));
}
