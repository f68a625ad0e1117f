// Content of results, resources and prompts, as a reader wants it. Everything in it is a server's, and is only text.

import { bytes, titleOf, visible } from "./format.js";
import { compact, parse } from "./json.js";
import { jsonTree } from "./json-tree.js";
import { html, nothing } from "./lit.js";

const MAX_SHOWN_CHARS = 200_000;
const MAX_UNFOLDED_BLOCKS = 20;
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}$/;

/** Parsed texts, by the blocks that have them: a tree stays unfolded while its value is the same object. */
const parsedTexts = new WeakMap();

/** A list of content blocks. */
export function contentBlocks(blocks) {
  const isFolded = blocks.length > MAX_UNFOLDED_BLOCKS;
  return blocks.map((block) => html`<div class="block">${contentBlock(block, isFolded)}</div>`);
}

function contentBlock(block, isFolded) {
  switch (block?.type) {
    case "text":
      return text(block, isFolded);
    case "image":
    case "audio":
      return media(block.data, block.mimeType);
    case "resource":
      return resourceContents(block.resource);
    case "resource_link":
      return html`<p>
        ${link(block.uri)} <span class="muted">${visible(titleOf(block) ?? "")} ${visible(block.mimeType ?? "")}</span>
      </p>
      ${block.description ? html`<p class="help">${visible(block.description)}</p>` : nothing}`;
    default:
      return jsonTree(block, { isFolded });
  }
}

/** The contents of one resource. */
export function resourceContents(given) {
  const contents = Object(given); // whatever a server has sent
  const { uri, mimeType, blob } = contents;
  return html`<p class="muted">${visible(uri ?? "")} ${visible(mimeType ?? "")}</p>
    ${typeof blob === "string" ? media(blob, mimeType) : text(contents)}`;
}

/** The text of a block or a resource; JSON as a tree. */
function text(block, isFolded = false) {
  const whole = String(block.text ?? "");
  if (!parsedTexts.has(block)) parsedTexts.set(block, /^\s*[[{]/.test(whole) ? parsedOrNothing(whole) : undefined);
  const parsed = parsedTexts.get(block);
  if (parsed !== undefined) return jsonTree(parsed, { isFolded });
  const rest = whole.length - MAX_SHOWN_CHARS;
  return html`<pre class="text" dir="auto">${visible(whole.slice(0, MAX_SHOWN_CHARS))}</pre>
    ${rest > 0 ? html`<p class="muted">${rest.toLocaleString("en")} more characters; JSON has them all</p>` : nothing}`;
}

function parsedOrNothing(whole) {
  try {
    return parse(whole);
  } catch {
    return undefined;
  }
}

/** An image, a sound, or a file to download. */
function media(data, mimeType) {
  const type = /^[\w.+-]+\/[\w.+-]+$/.test(mimeType ?? "") ? mimeType : "application/octet-stream";
  if (typeof data !== "string" || !BASE64.test(data)) return html`<p class="error">The data is not Base64.</p>`;
  const size = bytes(Math.floor((data.replace(/[\s=]/g, "").length * 3) / 4));
  const source = `data:${type};base64,${data.replace(/\s/g, "")}`;
  const caption = html`<p class="muted">
    ${type}, ${size} · <a href="data:application/octet-stream;base64,${data.replace(/\s/g, "")}" download="content">Download</a>
  </p>`;
  if (type.startsWith("image/")) return html`<img src=${source} alt="${type}, ${size}">${caption}`;
  if (type.startsWith("audio/")) return html`<audio controls src=${source}></audio>${caption}`;
  return caption;
}

/** An address; a link if it is one of the web. */
export function link(uri) {
  const shown = visible(uri ?? "");
  return /^https?:\/\//i.test(uri ?? "")
    ? html`<a href=${uri} target="_blank" rel="noopener noreferrer">${shown}</a>`
    : html`<code>${shown}</code>`;
}

/** The structured content of a result. */
export function structured(result) {
  return result.structuredContent === undefined || result.structuredContent === null
    ? nothing
    : html`<section><h4>Structured content</h4>${jsonTree(result.structuredContent)}</section>`;
}

/** True if the only text of a result is its structured content again. */
export function repeatsStructure({ content, structuredContent }) {
  if (structuredContent === undefined || content?.length !== 1 || content[0].type !== "text") return false;
  const parsed = parsedOrNothing(content[0].text);
  return parsed !== undefined && typeof parsed === "object" && compact(parsed) === compact(structuredContent);
}
