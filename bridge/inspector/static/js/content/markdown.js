// Markdown of servers. The parser's tokens become elements here, so that no text of a server is ever parsed as HTML.
// Nothing is loaded from elsewhere: an image of the web is only named.

import "../../vendor/markdown-it/markdown-it.js"; // defines `markdownit`
import { link, visible } from "../format.js";
import { html } from "../lit.js";

const MAX_CHARS = 100_000;
const HINTS = [
  /^ {0,3}#{1,6} \S/m, // heading
  /^ {0,3}(```|~~~)/m, // code
  /\*\*\S[^*\n]*\*\*/, // strong
  /\[[^\]\n]+\]\([^)\s]+\)/, // link
  /^ *\|?[ :]*-{3,}[ :]*\|[ :|-]*$/m, // table
  /(^ {0,3}([-*+]|\d{1,3}[.)]) \S.*\n+){2}/m, // list
];
const DATA_IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

const parser = globalThis.markdownit({ html: false, linkify: false });

/** True if a text of no declared type seems to be Markdown. */
export function looksLikeMarkdown(text) {
  return text.length <= MAX_CHARS && HINTS.some((hint) => hint.test(`${text}\n`));
}

/** True if a text can be shown as Markdown. */
export const fitsMarkdown = (text) => text.length <= MAX_CHARS;

/** A Markdown text as elements. */
export function markdown(text) {
  return html`<div class="markdown" dir="auto">${nodes(nested(parser.parse(text, {})))}</div>`;
}

/** The parser's list of tokens as a tree. */
function nested(tokens) {
  const open = [{ children: [] }];
  for (const token of tokens) {
    if (token.nesting < 0) {
      open.pop();
      continue;
    }
    const node = { token, children: token.children ? nested(token.children) : [] };
    open.at(-1).children.push(node);
    if (token.nesting > 0) open.push(node);
  }
  return open[0].children;
}

const nodes = (children) => children.map(({ token, children: inner }) => (renderers[token.type] ?? other)(inner, token));

/** A token that the page does not know: its content as text. */
const other = (inner, { content }) => (inner.length ? nodes(inner) : visible(content));

const renderers = {
  paragraph_open: (inner, { hidden }) => (hidden ? nodes(inner) : html`<p>${nodes(inner)}</p>`),
  heading_open: (inner, { tag }) =>
    html`<div class="heading ${tag}" role="heading" aria-level=${Math.min(6, Number(tag[1]) + 2)}>${nodes(inner)}</div>`,
  bullet_list_open: (inner) => html`<ul>${nodes(inner)}</ul>`,
  ordered_list_open: (inner, token) => html`<ol start=${token.attrGet("start") ?? 1}>${nodes(inner)}</ol>`,
  list_item_open: (inner) => html`<li>${nodes(inner)}</li>`,
  blockquote_open: (inner) => html`<blockquote>${nodes(inner)}</blockquote>`,
  table_open: (inner) => html`<div class="scrolled"><table>${nodes(inner)}</table></div>`,
  thead_open: (inner) => html`<thead>${nodes(inner)}</thead>`,
  tbody_open: (inner) => html`<tbody>${nodes(inner)}</tbody>`,
  tr_open: (inner) => html`<tr>${nodes(inner)}</tr>`,
  th_open: (inner) => html`<th>${nodes(inner)}</th>`,
  td_open: (inner) => html`<td>${nodes(inner)}</td>`,
  strong_open: (inner) => html`<strong>${nodes(inner)}</strong>`,
  em_open: (inner) => html`<em>${nodes(inner)}</em>`,
  s_open: (inner) => html`<s>${nodes(inner)}</s>`,
  link_open: (inner, token) => {
    const target = token.attrGet("href");
    const isBare = inner.length === 1 && inner[0].token.content === target;
    return isBare ? link(target) : html`${link(target, nodes(inner))} <span class="target">${visible(target)}</span>`;
  },
  image: (_, token) => {
    const source = token.attrGet("src");
    if (DATA_IMAGE.test(source)) return html`<img src=${source} alt=${visible(token.content)}>`;
    return html`<span class="target">image: ${visible(token.content)}</span> ${link(source)}`;
  },
  fence: (_, { content }) => html`<pre class="text code" tabindex="0">${visible(content)}</pre>`,
  code_block: (_, { content }) => html`<pre class="text code" tabindex="0">${visible(content)}</pre>`,
  code_inline: (_, { content }) => html`<code>${visible(content)}</code>`,
  softbreak: () => html`<br>`,
  hardbreak: () => html`<br>`,
  hr: () => html`<hr>`,
  text: (_, { content }) => visible(content),
};
