// A button that reloads the configuration after a second press, and shows the result.

import { Failed, Wrong, post } from "./api.js";
import { html, twice } from "./dom.js";

export function reloading(attempt) {
  const told = html("span", { class: "muted", role: "status" });
  const tell = (...nodes) => told.replaceChildren(...nodes);

  async function reload() {
    tell("Reading…");
    try {
      const reply = await attempt(() => post("../reload", {}), true);
      if (!reply) tell();
      else if (!reply.value.changes.length) tell("The file matches the configuration in use.");
      else tell("Changed: ", reply.value.changes.join("; "), ".");
    } catch (error) {
      if (error instanceof Wrong) tell("The file has errors. Nothing has changed.");
      else if (error instanceof Failed) tell(`Reload failed: ${error.message}.`);
      else throw error;
    }
  }

  return html("div", { class: "controls" }, twice("Reload", reload), told);
}
