// Content of results, resources and prompts, as a reader wants it. Everything in it is a server's, and is only text.

import { bytes, link, titleOf, visible } from "../format.js";
import { bytesOfBase64, hexView } from "./hex.js";
import { compact } from "../json.js";
import { jsonTree } from "./json-tree.js";
import { html, nothing } from "../lit.js";
import { changed } from "../store.js";
import { parsedOrNothing, textView } from "./text-view.js";

const MAX_UNFOLDED_BLOCKS = 20;
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}$/;

/** Blocks and contents whose bytes are shown. */
const opened = new WeakSet();

/** A list of content blocks. */
export function contentBlocks(blocks) {
  const isFolded = blocks.length > MAX_UNFOLDED_BLOCKS;
  return blocks.map((block) => html`<div class="block">${contentBlock(block, isFolded)}</div>`);
}

function contentBlock(block, isFolded) {
  switch (block?.type) {
    case "text":
      return textView(block, { isFolded });
    case "image":
    case "audio":
      return media(block, block.data, block.mimeType);
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
    ${typeof blob === "string" ? media(contents, blob, mimeType) : textView(contents)}`;
}

/** An image, a sound, or a file to download; its bytes as well. */
function media(block, data, mimeType) {
  const type = /^[\w.+-]+\/[\w.+-]+$/.test(mimeType ?? "") ? mimeType : "application/octet-stream";
  if (typeof data !== "string" || !BASE64.test(data)) return html`<p class="error">The data is not Base64.</p>`;
  const size = bytes(Math.floor((data.replace(/[\s=]/g, "").length * 3) / 4));
  const source = `data:${type};base64,${data.replace(/\s/g, "")}`;
  const toggle = () => {
    if (!opened.delete(block)) opened.add(block);
    changed();
  };
  const caption = html`<p class="muted">
      ${type}, ${size} · <a href="data:application/octet-stream;base64,${data.replace(/\s/g, "")}" download="content">Download</a>
      <button type="button" class="quiet" aria-pressed=${opened.has(block)} @click=${toggle}>Bytes</button>
    </p>
    ${opened.has(block) ? hexView(bytesOfBase64(data)) : nothing}`;
  if (type.startsWith("image/")) return html`<img src=${source} alt="${type}, ${size}">${caption}`;
  if (type.startsWith("audio/")) return html`<audio controls src=${source}></audio>${caption}`;
  return caption;
}

/** The structured content of a result. */
export function structured(result) {
  return result.structuredContent === undefined || result.structuredContent === null
    ? nothing
    : html`<section><h3>Structured content</h3>${jsonTree(result.structuredContent)}</section>`;
}

/** True if the only text of a result is its structured content again. */
export function repeatsStructure({ content, structuredContent }) {
  if (structuredContent === undefined || content?.length !== 1 || content[0].type !== "text") return false;
  const parsed = parsedOrNothing(content[0].text);
  return parsed !== undefined && typeof parsed === "object" && compact(parsed) === compact(structuredContent);
}
