// View of JSON as a tree that can be folded.

import { visible } from "./format.js";
import { html, nothing } from "./lit.js";

const MAX_CHILDREN = 200;
const OPEN_LEVELS = 2;
const MAX_OPEN_CHILDREN = 20;

export function jsonTree(value) {
  return html`<div class="tree">${node(value, undefined, 0)}</div>`;
}

function node(value, name, level) {
  const label = name === undefined ? nothing : html`<span class="key">${visible(name)}</span>`;
  if (value === null || typeof value !== "object") return html`<div class="leaf">${label}${scalar(value)}</div>`;
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  const size = `${isList ? "[" : "{"}${entries.length}${isList ? "]" : "}"}`;
  if (!entries.length) return html`<div class="leaf">${label}<span class="size">${isList ? "[]" : "{}"}</span></div>`;
  const isOpen = level < OPEN_LEVELS && entries.length <= MAX_OPEN_CHILDREN;
  const rest = entries.length - MAX_CHILDREN;
  return html`<details ?open=${isOpen}>
    <summary>${label}<span class="size">${size}</span></summary>
    ${entries.slice(0, MAX_CHILDREN).map(([key, each]) => node(each, key, level + 1))}
    ${rest > 0 ? html`<div class="leaf muted">${rest} more; JSON has them all</div>` : nothing}
  </details>`;
}

function scalar(value) {
  const kind = value === null ? "null" : typeof value;
  return html`<span class="value ${kind}">${kind === "string" ? visible(value) : String(value)}</span>`;
}
