// JSON-RPC messages between the inspector and the servers, the last first.

import { api } from "./api.js";
import { bytes, timeOfDay, visible } from "./format.js";
import { parse, pretty } from "./json.js";
import { html, live, nothing, repeat } from "./lit.js";
import { attempt, bodyOf, changed, state } from "./store.js";

const opened = new Set();

export function trafficView() {
  const { server, direction, text } = state.filter;
  const found = state.messages.filter(
    (message) =>
      (!server || message.server === server) &&
      (!direction || message.direction === direction) &&
      `${message.method} ${message.kind}`.toLowerCase().includes(text.toLowerCase()),
  );
  return html`<article>
    <header class="bar">
      <h2>Traffic</h2>
      ${filters()}
      <button type="button" class="quiet" @click=${() => attempt(api.clearMessages)}>Clear</button>
    </header>
    <p class="muted">${found.length} of ${state.messages.length} messages</p>
    <ol class="rows">
      ${repeat([...found].reverse(), ({ number }) => number, row)}
    </ol>
  </article>`;
}

function filters() {
  const set = (key) => ({ target }) => {
    state.filter[key] = target.value;
    changed();
  };
  return html`<div class="filters">
    <select aria-label="Server" @change=${set("server")}>
      <option value="">all servers</option>
      ${state.servers.map(({ name }) => html`<option value=${name}>${visible(name)}</option>`)}
    </select>
    <select aria-label="Direction" @change=${set("direction")}>
      <option value="">both directions</option>
      <option value="sent">sent</option>
      <option value="received">received</option>
    </select>
    <input type="search" placeholder="Method" aria-label="Method" .value=${live(state.filter.text)} @input=${set("text")}>
  </div>`;
}

function row(message) {
  const { number, server, direction, at, method, kind } = message;
  const isOpen = opened.has(number);
  const toggle = () => {
    if (!opened.delete(number)) opened.add(number);
    changed();
  };
  return html`<li class="${direction} is-${kind}">
    <button type="button" class="row" aria-expanded=${isOpen} @click=${toggle}>
      <time>${timeOfDay(at)}</time>
      <span class="server-of">${visible(server)}</span>
      <span class="what"><span class="arrow" role="img" aria-label=${direction}>${direction === "sent" ? "→" : "←"}</span> <b>${visible(method)}</b> ${kind}</span>
      <span class="figures">${bytes(message.bytes)}</span>
    </button>
    ${isOpen ? html`<pre class="text code" tabindex="0">${indented(bodyOf(message))}</pre>` : nothing}
  </li>`;
}

/** A message with indents; one that only lenient parsers read, such as with NaN, as it is. */
function indented(body) {
  if (!body) return "";
  try {
    return visible(pretty(parse(body)));
  } catch {
    return visible(body);
  }
}
