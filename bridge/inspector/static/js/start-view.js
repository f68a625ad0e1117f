// The start: all servers with what they say about themselves, their problems, and what can be done with them.

import { api } from "./api.js";
import { visible } from "./format.js";
import { pretty } from "./json.js";
import { html, nothing, repeat } from "./lit.js";
import { hrefTo } from "./route.js";
import { save } from "./server-form.js";
import { KINDS, stateDot, stateText } from "./sidebar.js";
import { snippet } from "./snippet.js";
import { attempt, changed, state } from "./store.js";

const MAX_INSTRUCTIONS = 400;

/** Servers as an `mcp.json` has them, while they are shown. */
let exported = null;

export function startView() {
  return html`<article class="start">
    <header class="bar">
      <h2>Servers</h2>
      <a class="button" href=${hrefTo("new-server")}>Add a server</a>
      <button type="button" @click=${toggleExport}>${exported ? "Close the export" : "Export"}</button>
    </header>
    ${exported ? snippet("All servers as mcp.json, values of variables left out", exported) : nothing}
    ${state.servers.length ? nothing : html`<p class="muted">There are no servers yet.</p>`}
    <ul class="cards">${repeat(state.servers, ({ name }) => name, card)}</ul>
  </article>`;
}

async function toggleExport() {
  if (exported) exported = null;
  else await attempt(async () => (exported = `${pretty(await api.entries())}\n`));
  changed();
}

function card(server) {
  const { name, info, error, address } = server;
  const counts = KINDS.filter(([, list]) => server[list].length).map(([, list, heading]) => counted(server[list].length, heading.toLowerCase()));
  const isDisabled = server.state === "disabled";
  return html`<li class="card">
    <h3><a href=${hrefTo("server", name)}>${visible(name)}</a></h3>
    <p class="muted">${stateDot(server)} ${stateText(server.state)}${address ? html` · <code>${visible(address)}</code>` : nothing}</p>
    ${counts.length ? html`<p>${counts.join(", ")}</p>` : nothing}
    ${error ? html`<p class="error">${visible(error)}</p>` : nothing}
    ${server.problems.length ? html`<p class="warning">${server.problems.length === 1 ? visible(server.problems[0]) : `${server.problems.length} problems in its lists`}</p>` : nothing}
    ${info?.instructions ? html`<p class="instructions" dir="auto">${visible(shortened(info.instructions))}</p>` : nothing}
    <div class="actions">
      <a class="button" href=${hrefTo("edit-server", name)} aria-label="Edit ${visible(name)}">Edit</a>
      <button type="button" aria-label="${isDisabled ? "Enable" : "Disable"} ${visible(name)}" @click=${() => toggle(server)}>${isDisabled ? "Enable" : "Disable"}</button>
      ${isDisabled ? nothing : html`<button type="button" aria-label="Restart ${visible(name)}" @click=${() => attempt(() => api.restart(name))}>Restart</button>`}
    </div>
  </li>`;
}

/** Enable or disable a server for this run; the editor does so in the file as well. */
async function toggle({ name, state: present }) {
  await attempt(async () => {
    const { enabled: _enabled, disabled: _disabled, ...entry } = (await api.entries()).mcpServers[name];
    await save(name, present === "disabled" ? entry : { ...entry, disabled: true }, false);
  });
}

const counted = (count, plural) => `${count} ${count === 1 ? plural.slice(0, -1) : plural}`;
const shortened = (text) => (text.length > MAX_INSTRUCTIONS ? `${text.slice(0, MAX_INSTRUCTIONS)}…` : text);
