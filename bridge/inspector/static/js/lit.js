// The parts of lit-html that the page uses. It sets texts of servers as text nodes, never as HTML.

export { html, nothing, render } from "../vendor/lit-html/lit-html.js";
export { live } from "../vendor/lit-html/directives/live.js";
export { repeat } from "../vendor/lit-html/directives/repeat.js";
