// A server: its state, what it says about itself, and problems.

import { api } from "./api.js";
import { timeOfDay, visible } from "./format.js";
import { jsonTree } from "./content/json-tree.js";
import { html, nothing } from "./lit.js";
import { hrefTo } from "./route.js";
import { stateDot, stateText } from "./sidebar.js";
import { attempt, serverNamed } from "./store.js";

export function serverView({ server: name }) {
  const server = serverNamed(name);
  if (!server) return html`<p class="muted">There is no server ${visible(name)}.</p>`;
  const { info } = server;
  const facts = [
    ["Address", server.address],
    ["Transport", server.transport],
    ["Protocol", server.protocolVersion && `${server.protocolVersion} (${server.era} era)`],
    ["Name", info?.title || info?.name],
    ["Version", info?.version],
  ].filter(([, value]) => value);
  return html`<article class="item-view">
    <header class="item-heading">
      <h2>${visible(name)}</h2>
      <p class="muted">${stateDot(server)} ${stateText(server.state)}</p>
    </header>
    ${server.error ? html`<p class="error">${visible(server.error)}</p>` : nothing}
    ${server.problems.map((problem) => html`<p class="warning">${visible(problem)}</p>`)}
    ${server.awaited ? html`<p class="warning" role="status">${server.awaited} has not been answered yet.</p>` : nothing}
    <dl class="facts">${facts.map(([term, value]) => html`<dt>${term}</dt><dd>${visible(value)}</dd>`)}</dl>
    ${info?.instructions
      ? html`<h3>Instructions</h3><pre class="text" dir="auto" tabindex="0">${visible(info.instructions)}</pre>`
      : nothing}
    ${info ? html`<h3>Capabilities</h3>${jsonTree(info.capabilities)}` : nothing}
    ${changes(server)}
    <div class="actions">
      ${server.state === "disabled"
        ? nothing
        : html`<button type="button" @click=${() => attempt(() => api.refresh(name))}>List again</button>
            <button type="button" @click=${() => attempt(() => api.restart(name))}>Restart</button>`}
      <a class="button" href=${hrefTo("edit-server", name)}>Edit</a>
    </div>
  </article>`;
}

/** What the server has announced, the last first, and the resources that the page is subscribed to. */
function changes({ name, watched, changes: announced }) {
  const uris = Object.entries(watched);
  return html`${uris.length
      ? html`<h3>Subscriptions</h3>
          <ul>${uris.map(([uri, count]) => html`<li>
            <a href=${hrefTo("resource", name, uri)}>${visible(uri)}</a> <span class="muted">${updates(count)}</span>
          </li>`)}</ul>`
      : nothing}
    ${announced.length
      ? html`<h3>Changes</h3>
          <ol class="changes" aria-live="polite">${[...announced].reverse().map(
            ({ at, what, subject }) => html`<li><time>${timeOfDay(at)}</time> ${what} <b>${visible(subject)}</b></li>`,
          )}</ol>`
      : nothing}`;
}

export const updates = (count) => (count === 1 ? "1 update" : `${count} updates`);
