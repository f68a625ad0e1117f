// Colours of the page: those of the system, light, or dark.

import { html } from "./lit.js";
import { changed } from "./store.js";

const THEMES = ["system", "light", "dark"];
const KEY = "bridge-inspect-theme";
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const listeners = [];
let theme = THEMES.find((each) => each === localStorage.getItem(KEY)) ?? "system";

export const isDark = () => (theme === "system" ? systemIsDark.matches : theme === "dark");

/** Call a function whenever the colours change. */
export function onThemeChange(listener) {
  listeners.push(listener);
}

function applied() {
  document.documentElement.dataset.theme = theme;
  for (const listener of listeners) listener();
}

/** Choice of the colours, which the browser keeps. */
export function themeSwitch() {
  const choose = ({ target }) => {
    theme = target.value;
    localStorage.setItem(KEY, theme);
    applied();
    changed();
  };
  return html`<select class="theme" aria-label="Theme" @change=${choose}>
    ${THEMES.map((each) => html`<option value=${each} ?selected=${each === theme}>${each}</option>`)}
  </select>`;
}

systemIsDark.addEventListener("change", applied);
applied();
