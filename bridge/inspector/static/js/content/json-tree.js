// View of JSON as a tree that can be folded. Children have elements only while they are unfolded.

import { visible } from "../format.js";
import { html, nothing } from "../lit.js";
import { changed } from "../store.js";

const MAX_CHILDREN = 200;
const OPEN_LEVELS = 2;
const MAX_OPEN_CHILDREN = 20;
const MAX_LEVELS = 100;

/** True or false for objects and lists that the user has unfolded or folded. */
const chosen = new WeakMap();

/** The tree of a value; its first levels are unfolded unless it begins folded. */
export function jsonTree(value, { isFolded = false } = {}) {
  return html`<div class="tree">${node(value, undefined, isFolded ? OPEN_LEVELS : 0)}</div>`;
}

function node(value, name, level) {
  const label = name === undefined ? nothing : html`<span class="key">${visible(name)}</span>`;
  if (value === null || typeof value !== "object") return html`<div class="leaf">${label}${scalar(value)}</div>`;
  const isList = Array.isArray(value);
  const keys = Object.keys(value);
  const size = `${isList ? "[" : "{"}${keys.length}${isList ? "]" : "}"}`;
  if (!keys.length) return html`<div class="leaf">${label}<span class="size">${isList ? "[]" : "{}"}</span></div>`;
  if (level > MAX_LEVELS) return html`<div class="leaf">${label}<span class="size">${size}</span> <span class="muted">JSON has it all</span></div>`;
  const isOpen = chosen.get(value) ?? (level < OPEN_LEVELS && keys.length <= MAX_OPEN_CHILDREN);
  const choose = ({ currentTarget }) => {
    if (currentTarget.open === isOpen) return;
    chosen.set(value, currentTarget.open);
    changed();
  };
  return html`<details ?open=${isOpen} @toggle=${choose}>
    <summary>${label}<span class="size">${size}</span></summary>
    ${isOpen ? children(value, keys, level) : nothing}
  </details>`;
}

function children(value, keys, level) {
  const rest = keys.length - MAX_CHILDREN;
  return html`${keys.slice(0, MAX_CHILDREN).map((key) => node(value[key], key, level + 1))}
    ${rest > 0 ? html`<div class="leaf muted">${rest} more; JSON has them all</div>` : nothing}`;
}

function scalar(value) {
  const kind = value === null ? "null" : typeof value;
  return html`<span class="value ${kind}">${kind === "string" ? visible(value) : String(value)}</span>`;
}
