// Numbers, times, addresses and foreign texts as people read them.

import { html } from "./lit.js";

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 1e6 ? `${(count / 1000).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

export function milliseconds(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return `${(ms / 1000).toFixed(1)} s`;
}

export function tokens(count) {
  return `~${count.toLocaleString("en")} ${count === 1 ? "token" : "tokens"}`;
}

/** Time of day with milliseconds, in the reader's time zone. */
export function timeOfDay(seconds) {
  const date = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  return `${time}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** The title that a reader sees of a tool, resource or prompt. */
export function titleOf(item) {
  return item.title || item.annotations?.title || item.name || item.uri || item.uriTemplate;
}

/** Characters that show nothing or reverse a text are written out, as in U+202E. */
export function visible(text) {
  return String(text).replace(
    /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u115f\u180e\u200b-\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\u{e0000}-\u{e01ef}]/gu,
    (character) => `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}

/**
 * An address; a link if it is one of the web.
 *
 * @param label  what is shown; the address itself by default
 */
export function link(uri, label = visible(uri ?? "")) {
  return /^https?:\/\//i.test(uri ?? "")
    ? html`<a href=${uri} title=${visible(uri)} target="_blank" rel="noopener noreferrer">${label}</a>`
    : html`<code>${label}</code>`;
}
