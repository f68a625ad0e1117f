// A text of a server as a reader wants it: a JSON tree, Markdown, its characters, or its bytes.

import { visible } from "../format.js";
import { bytesOfText, hexView } from "./hex.js";
import { parse } from "../json.js";
import { jsonTree } from "./json-tree.js";
import { html, nothing } from "../lit.js";
import { fitsMarkdown, looksLikeMarkdown, markdown } from "./markdown.js";
import { changed } from "../store.js";

const MAX_SHOWN_CHARS = 200_000;

/** Parsed texts, by the blocks that have them: a tree stays unfolded while its value is the same object. */
const parsedTexts = new WeakMap();
/** Elements of Markdown texts, by block; parsing takes time. */
const formatted = new WeakMap();
/** Chosen views, by block. */
const chosenViews = new WeakMap();

/**
 * The text of a block or a resource, with a choice of views.
 *
 * @param block  the object with `text`, and `mimeType` if the server has named one
 */
export function textView(block, { isFolded = false } = {}) {
  const whole = String(block.text ?? "");
  if (!parsedTexts.has(block)) parsedTexts.set(block, /^\s*[[{]/.test(whole) ? parsedOrNothing(whole) : undefined);
  const parsed = parsedTexts.get(block);
  const shown = {
    Tree: parsed === undefined ? null : () => jsonTree(parsed, { isFolded }),
    Markdown: parsed === undefined && fitsMarkdown(whole) ? () => formattedOnce(block, whole) : null,
    Text: () => characters(whole),
    Bytes: () => hexView(bytesOfText(whole)),
  };
  const views = Object.keys(shown).filter((view) => shown[view]);
  const chosen = chosenViews.get(block) ?? (parsed === undefined ? firstView(block, whole) : "Tree");
  return html`${viewChoice(views, chosen, (view) => chosenViews.set(block, view))}${shown[chosen]()}`;
}

function formattedOnce(block, whole) {
  if (!formatted.has(block)) formatted.set(block, markdown(whole));
  return formatted.get(block);
}

function firstView({ mimeType }, whole) {
  const isMarkdown = /^text\/(x-)?markdown\b/.test(mimeType ?? "") && fitsMarkdown(whole);
  const isUndeclared = !mimeType || /^text\/plain\b/.test(mimeType);
  return isMarkdown || (isUndeclared && looksLikeMarkdown(whole)) ? "Markdown" : "Text";
}

/** Buttons that choose a view. */
export function viewChoice(views, chosen, choose) {
  const act = (view) => () => {
    choose(view);
    changed();
  };
  return html`<div class="views">
    ${views.map((view) => html`<button type="button" aria-pressed=${view === chosen} @click=${act(view)}>${view}</button>`)}
  </div>`;
}

function characters(whole) {
  const rest = whole.length - MAX_SHOWN_CHARS;
  return html`<pre class="text" dir="auto" tabindex="0">${visible(whole.slice(0, MAX_SHOWN_CHARS))}</pre>
    ${rest > 0 ? html`<p class="muted">${rest.toLocaleString("en")} more characters; JSON has them all</p>` : nothing}`;
}

/** The value of a JSON text; undefined if it is none. */
export function parsedOrNothing(whole) {
  try {
    return parse(whole);
  } catch {
    return undefined;
  }
}
