// Requests of this run, the last first.

import { api } from "./api.js";
import { bytes, milliseconds, timeOfDay, visible } from "./format.js";
import { repeat as editAgain } from "./item-view.js";
import { compact } from "./json.js";
import { html, nothing, repeat } from "./lit.js";
import { requestView } from "./request-view.js";
import { hrefTo } from "./route.js";
import { attempt, itemKey, requestNumbered, send, state } from "./store.js";

export function historyView({ number }) {
  const chosen = number === null ? undefined : requestNumbered(number);
  return html`<article>
    <header class="bar">
      <h2>History</h2>
      <button type="button" class="quiet" @click=${() => attempt(api.clearRequests)}>Clear</button>
    </header>
    ${state.requests.length ? nothing : html`<p class="muted">Nothing has been called yet.</p>`}
    <ol class="rows">
      ${repeat(
        [...state.requests].reverse(),
        (request) => request.number,
        (request) => row(request, request === chosen),
      )}
    </ol>
  </article>`;
}

function row(request, isOpen) {
  const { number, server, at, state: outcome } = request;
  return html`<li class="is-${outcome}">
    <a class="row" href=${isOpen ? hrefTo("history") : hrefTo("history", number)} aria-expanded=${isOpen}>
      <time>${timeOfDay(at)}</time>
      <span class="server-of">${visible(server)}</span>
      <span class="what"><b>${visible(nameOf(request))}</b> ${visible(shortened(argumentsOf(request)))}</span>
      <span class="figures">${figures(request)}</span>
    </a>
    ${isOpen ? opened(request) : nothing}
  </li>`;
}

function figures({ state: outcome, ms, bytes: size }) {
  return [outcome === "done" ? "" : outcome, milliseconds(ms), size ? bytes(size) : ""].filter(Boolean).join(" · ");
}

const nameOf = ({ params, method }) => params.name ?? params.uri ?? method;
const argumentsOf = ({ params }) => (params.arguments ? compact(params.arguments) : "");
const shortened = (text) => (text.length > 160 ? `${text.slice(0, 160)}…` : text);

const KIND_OF = { "tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource", "events/poll": "event" };

/** Choice of another request to compare with; those for the same item come first. */
function comparison(request) {
  const isSame = (each) => each.server === request.server && nameOf(each) === nameOf(request);
  const others = state.requests.filter((each) => each !== request && each.state !== "running").reverse();
  const ordered = [...others.filter(isSame), ...others.filter((each) => !isSame(each))];
  if (!ordered.length) return nothing;
  const choose = ({ target }) => {
    location.hash = hrefTo("compare", Math.min(request.number, target.value), Math.max(request.number, target.value));
  };
  return html`<select class="comparison" aria-label="Compare with" @change=${choose}>
    <option value="" selected>Compare with…</option>
    ${ordered.map(
      (each) => html`<option value=${each.number}>${timeOfDay(each.at)} ${visible(nameOf(each))} ${visible(shortened(argumentsOf(each)))}</option>`,
    )}
  </select>`;
}

function opened(request) {
  const { server, method, params } = request;
  const key = itemKey(KIND_OF[method], server, nameOf(request));
  const again = () => send(key, server, method, params);
  const edit = () => {
    editAgain(request);
    location.hash = hrefTo(KIND_OF[method], server, nameOf(request));
  };
  return html`<div class="opened">
    <div class="actions">
      <button type="button" @click=${again}>Repeat</button>
      ${method !== "resources/read" ? html`<button type="button" @click=${edit}>Edit</button>` : nothing}
      ${comparison(request)}
    </div>
    ${requestView(request)}
  </div>`;
}
