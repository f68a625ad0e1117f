// Bytes as hexadecimal numbers beside their characters.

import { bytes as sizeText } from "../format.js";
import { html, nothing } from "../lit.js";

const SHOWN_BYTES = 4096;
const ROW_BYTES = 16;

/** The first bytes of an array. */
export function hexView(array) {
  const rows = [];
  for (let at = 0; at < Math.min(array.length, SHOWN_BYTES); at += ROW_BYTES) rows.push(row(array, at));
  const rest = array.length - SHOWN_BYTES;
  return html`<pre class="code hex" tabindex="0" aria-label="Bytes">${rows.join("\n")}</pre>
    ${rest > 0 ? html`<p class="muted">${sizeText(rest)} more</p>` : nothing}`;
}

function row(array, at) {
  const part = [...array.subarray(at, at + ROW_BYTES)];
  const numbers = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const characters = part.map((byte) => (byte > 0x1f && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
  return `${at.toString(16).padStart(6, "0")}  ${numbers.padEnd(ROW_BYTES * 3)} ${characters}`;
}

/** Bytes of a text in UTF-8. */
export const bytesOfText = (text) => new TextEncoder().encode(text);

/** Bytes of Base64 data, of which a last incomplete character is left out. */
export function bytesOfBase64(data) {
  const digits = data.replace(/[\s=]/g, "");
  const whole = digits.slice(0, digits.length - (digits.length % 4 === 1));
  return Uint8Array.from(atob(whole), (character) => character.charCodeAt(0));
}
