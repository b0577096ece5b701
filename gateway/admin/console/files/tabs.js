// Tabs: a row of buttons, and the panel of the selected button. Arrow keys move between tabs.

import { html } from "./dom.js";

let made = 0;

export class Tabs {
  /** `tabs`: `[name, title, node]` for each tab. `chosen`: the name of the initial tab. `pressed(name)` is called when
   * the user selects another tab. */
  constructor(label, tabs, chosen = tabs[0][0], pressed = () => {}) {
    this.pressed = pressed;
    this.buttons = new Map();
    this.panels = new Map();
    const id = `tabs-${++made}`;
    const list = html("div", { class: "tabs", role: "tablist", "aria-label": label, keydown: (event) => this.#key(event) });
    this.element = html("div", {}, list);
    for (const [name, title, node] of tabs) {
      const button = html("button", {
        type: "button", role: "tab", id: `${id}-${name}`, "aria-controls": `${id}-${name}-panel`, click: () => this.#press(name),
      }, title);
      const panel = html("div", { role: "tabpanel", id: `${id}-${name}-panel`, "aria-labelledby": `${id}-${name}`, class: "tab-panel" }, node);
      this.buttons.set(name, button);
      this.panels.set(name, panel);
      list.append(button);
      this.element.append(panel);
    }
    this.choose(chosen);
  }

  choose(name) {
    for (const [each, button] of this.buttons) {
      button.setAttribute("aria-selected", String(each === name));
      button.tabIndex = each === name ? 0 : -1;
      this.panels.get(each).hidden = each !== name;
    }
  }

  /** Replace the content of a tab. */
  fill(name, ...nodes) {
    this.panels.get(name).replaceChildren(...nodes.flat().filter(Boolean));
  }

  #press(name) {
    this.choose(name);
    this.pressed(name);
  }

  #key(event) {
    const names = [...this.buttons.keys()];
    const at = names.findIndex((each) => this.buttons.get(each) === event.target);
    const steps = { ArrowRight: at + 1, ArrowLeft: at - 1 + names.length, Home: 0, End: names.length - 1 };
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    const name = names[steps[event.key] % names.length];
    this.#press(name);
    this.buttons.get(name).focus();
  }
}
