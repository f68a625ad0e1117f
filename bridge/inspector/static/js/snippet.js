// Text to copy.

import { visible } from "./format.js";
import { html } from "./lit.js";

/** A text under its label, with a button that copies it. */
export function snippet(label, content) {
  const copy = async ({ target }) => {
    await navigator.clipboard.writeText(content);
    target.textContent = "Copied";
  };
  return html`<div class="snippet">
    <header><h3>${label}</h3><button type="button" class="quiet" @click=${copy}>Copy</button></header>
    <pre class="text code" tabindex="0" aria-label=${label}>${visible(content)}</pre>
  </div>`;
}
