// Form that adds a server, or changes one.

import { api } from "./api.js";
import { draftOf, editor } from "./forms/draft.js";
import { visible } from "./format.js";
import { html, live, nothing } from "./lit.js";
import { hrefTo } from "./route.js";
import { attempt, changed, state } from "./store.js";

const ENTRY = {
  type: "object",
  properties: {
    command: { type: "string", maxLength: 80, description: "Program of a server over stdio." },
    args: { type: "array", items: { type: "string", maxLength: 80 }, uniqueItems: false, description: "Its arguments." },
    env: { type: "object", additionalProperties: { type: "string", maxLength: 80 }, description: "Its environment; ${NAME} is a variable of yours." },
    cwd: { type: "string", maxLength: 80, description: "Folder that it starts in." },
    url: { type: "string", format: "uri", description: "Address of a server over HTTP, in place of a command." },
    headers: { type: "object", additionalProperties: { type: "string", maxLength: 80 }, description: "Headers of each request; ${NAME} is a variable of yours." },
    disabled: { type: "boolean", description: "Do not connect to it." },
  },
  additionalProperties: true,
};

const newServer = { name: "", isSaved: false };
/** Choices of the editors, by the server's name. */
const editors = new Map();

/** Send an entry; the page then gets the new state. */
export const save = (name, entry, isSaved) => api.putServer(name, entry, isSaved);

/** The form of a new server. */
export function newServerView() {
  return formView("Add a server", newServer, draftOf("new server", ENTRY), true);
}

/** The form of a server that is there. */
export function editServerView({ server: name }) {
  if (!state.servers.some((server) => server.name === name)) return html`<p class="muted">There is no server ${visible(name)}.</p>`;
  const choices = editors.get(name) ?? begun(name);
  return choices.draft ? formView(`Edit ${name}`, choices, choices.draft, false) : html`<p class="muted">Reading the entry…</p>`;
}

function begun(name) {
  const choices = { name, isSaved: false, draft: null };
  editors.set(name, choices);
  attempt(async () => {
    const entry = (await api.entries()).mcpServers[name];
    choices.draft = draftOf(`server ${name}`, ENTRY);
    choices.draft.load(entry);
  });
  return choices;
}

function formView(heading, choices, draft, isNew) {
  const submit = async (event) => {
    event.preventDefault();
    const name = choices.name.trim();
    if (draft.value === null || !name || draft.refuses()) return;
    await attempt(async () => {
      await save(name, draft.value, choices.isSaved);
      left(choices, draft);
      location.hash = hrefTo("server", name);
    });
  };
  const set = (key, from) => ({ target }) => {
    choices[key] = target[from];
    changed();
  };
  return html`<article class="item-view">
    <header class="item-heading"><h2>${visible(heading)}</h2></header>
    <form @submit=${submit} novalidate>
      ${isNew
        ? html`<div class="field">
            <label for="server-name">Name <abbr title="required">*</abbr></label>
            <input id="server-name" autocomplete="off" .value=${live(choices.name)} @input=${set("name", "value")}>
            ${state.servers.some(({ name }) => name === choices.name.trim()) ? html`<p class="missing">There is a server of this name; it is replaced.</p>` : nothing}
          </div>`
        : nothing}
      ${editor(draft, "Entry as JSON")}
      ${state.file
        ? html`<label class="option save">
            <input type="checkbox" .checked=${live(choices.isSaved)} @change=${set("isSaved", "checked")}>
            Save to <code>${visible(state.file)}</code>
          </label>`
        : html`<p class="muted">The page was not opened with one mcp.json: the change is for this run. Export the servers at the start.</p>`}
      <div class="actions">
        <button class="primary" ?disabled=${draft.value === null || !choices.name.trim()}>${isNew ? "Add" : "Change"}</button>
        <a class="button" href="#/" @click=${() => left(choices, draft)}>Cancel</a>
      </div>
    </form>
  </article>`;
}

/** Forget what was typed. */
function left(choices, draft) {
  editors.delete(choices.name);
  Object.assign(newServer, { name: "", isSaved: false });
  draft.load(undefined);
}
