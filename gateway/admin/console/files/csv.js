// Saves the data of a page as a CSV file (RFC 4180).

import { html } from "./dom.js";
import { NONE } from "./format.js";

/** Spreadsheets run text that begins with these characters as a formula, and clients choose some names. */
const FORMULA = /^[=+\-@\t\r]/;

function field(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  const text = value === NONE ? "" : String(value ?? "");
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export const csv = (rows) => rows.map((row) => `${row.map(field).join(",")}\r\n`).join("");

/** A button that saves the headings and `rows()` as a file with this name. Numbers are saved exactly. */
export function csvButton(label, name, rows) {
  return html("button", {
    type: "button",
    "aria-label": `CSV: save ${label} as a file`,
    click: () => {
      const address = URL.createObjectURL(new Blob([csv(rows())], { type: "text/csv" }));
      html("a", { href: address, download: `modelglot-${name}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    },
  }, "CSV");
}
