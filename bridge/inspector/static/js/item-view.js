// A tool, resource, resource template or prompt, with what can be done with it.

import { api } from "./api.js";
import { checkOf, draftOf, editor } from "./forms/draft.js";
import { titleOf, tokens, visible } from "./format.js";
import { pretty } from "./json.js";
import { html, nothing } from "./lit.js";
import { lastRequest } from "./request-view.js";
import { updates } from "./server-view.js";
import { KINDS } from "./sidebar.js";
import { attempt, itemKey, send, serverNamed, state } from "./store.js";
import { SUGGEST } from "./forms/suggestions.js";
import { expanded, variablesOf } from "./forms/uri-template.js";

/** The item of a route. */
export function itemView({ kind, server: serverName, name }) {
  const server = serverNamed(serverName);
  const [, list, , nameKey] = KINDS.find(([each]) => each === kind);
  const item = server?.[list].find((each) => each[nameKey] === name);
  if (!item) return html`<p class="muted">The server ${visible(serverName)} does not offer ${visible(name)}.</p>`;
  const key = itemKey(kind, serverName, name);
  return html`<article class="item-view">
    ${heading(kind, item, serverName)} ${views[kind](key, serverName, item)} ${lastRequest(key)}
    ${["tool", "skill", "event"].includes(kind) ? definition(item) : nothing}
  </article>`;
}

function heading(kind, item, server) {
  const name = item.uri ?? item.uriTemplate ?? item.name;
  const title = titleOf(item);
  return html`<header class="item-heading">
    <h2>${visible(title)}</h2>
    <p class="muted">
      ${title === name ? nothing : html`<code>${visible(name)}</code> · `}${visible(server)}${kind === "tool"
        ? html` · definition ${tokens(item.tokens)}`
        : nothing}${item.mimeType ? ` · ${visible(item.mimeType)}` : nothing}
    </p>
    ${item.annotations ? chips(item.annotations) : nothing}
    ${item.description ? html`<p class="description" tabindex="0">${visible(item.description)}</p>` : nothing}
  </header>`;
}

const HINTS = {
  readOnlyHint: ["read-only", "not read-only"],
  destructiveHint: ["destructive", "non-destructive"],
  idempotentHint: ["idempotent", "not idempotent"],
  openWorldHint: ["open world", "closed world"],
};

/** What a tool says about itself; nobody has checked it. */
function chips(annotations) {
  const texts = Object.entries(HINTS)
    .filter(([hint]) => typeof annotations[hint] === "boolean")
    .map(([hint, [yes, no]]) => (annotations[hint] ? yes : no));
  return texts.length
    ? html`<p class="chips" title="as the server says">${texts.map((text) => html`<span>${text}</span>`)}</p>`
    : nothing;
}

/** A form that sends a request when its draft is complete; Ctrl+Enter sends it from every field. */
function sending(action, label, body, draft = null) {
  const isReady = draft === null || draft.value !== null;
  const submit = (event) => {
    event.preventDefault();
    if (isReady && !draft?.refuses()) action();
  };
  const onKey = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };
  return html`<form @submit=${submit} @keydown=${onKey} novalidate>
    ${body}
    <div class="actions">
      <button class="primary" ?disabled=${!isReady} title="Ctrl+Enter">${label}</button>
    </div>
  </form>`;
}

const views = {
  tool(key, server, tool) {
    const draft = draftOf(key, tool.inputSchema, { check: checkOf(server, tool.name) });
    const call = () => send(key, server, "tools/call", { name: tool.name, arguments: draft.value });
    return sending(call, "Call", editor(draft), draft);
  },
  resource(key, server, { uri }) {
    return html`${sending(() => send(key, server, "resources/read", { uri }), "Read", nothing)} ${subscription(server, uri)}`;
  },
  template(key, server, { uriTemplate }) {
    const suggest = suggesting(key, server, { type: "ref/resource", uri: uriTemplate });
    const properties = Object.fromEntries(
      variablesOf(uriTemplate).map((name) => [name, { type: "string", maxLength: 80, ...suggest(name) }]),
    );
    const draft = draftOf(key, { type: "object", properties, additionalProperties: false });
    const uri = expanded(uriTemplate, draft.value ?? {});
    const body = html`${editor(draft)}<p class="muted">URI <code>${visible(uri)}</code></p>`;
    return sending(() => send(key, server, "resources/read", { uri }), "Read", body, draft);
  },
  skill(key, server, { uri, resources }) {
    const files = resources === "dynamic" ? [{ uri }] : resources;
    const read = (file) => send(key, server, "resources/read", { uri: file.uri });
    return html`<p class="muted">${resources === "dynamic" ? "generated, cannot be verified" : `files: ${files.length}`}</p>
      ${files.map((file) => html`<p><button type="button" @click=${() => read(file)}>Read</button> ${visible(file.uri)}</p>`)}`;
  },
  event(key, server, { name, inputSchema, delivery }) {
    const draft = draftOf(key, inputSchema ?? { type: "object" });
    const last = state.details.get(state.shown.get(key))?.answer?.result;
    const poll = () => send(key, server, "events/poll", { name, arguments: draft.value, cursor: last?.cursor ?? null });
    const hint = last?.cursor ? "Poll for the events since the last answer" : "Poll for the current position";
    return html`<p class="muted">delivered by ${delivery.join(", ")}</p>
      ${delivery.includes("poll") ? sending(poll, hint, editor(draft), draft) : nothing}`;
  },
  prompt(key, server, { name, arguments: parameters = [] }) {
    const draft = promptDraft(key, server, name, parameters);
    const get = () => send(key, server, "prompts/get", { name, arguments: draft.value });
    return sending(get, "Get", editor(draft), draft);
  },
};

/** Subscription to a resource, if the server announces updates. */
function subscription(server, uri) {
  const { info, watched } = serverNamed(server);
  if (!info?.capabilities?.resources?.subscribe) return nothing;
  const isWatched = Object.hasOwn(watched, uri);
  const toggle = () => attempt(() => api.watch(server, uri, !isWatched));
  return html`<p class="subscription">
    <button type="button" aria-pressed=${isWatched} @click=${toggle}>${isWatched ? "Unsubscribe" : "Subscribe"}</button>
    <span role="status">${isWatched ? updates(watched[uri]) : nothing}</span>
  </p>`;
}

function promptDraft(key, server, name, parameters) {
  const suggest = suggesting(key, server, { type: "ref/prompt", name });
  const properties = Object.fromEntries(
    parameters.map(({ name: own, title, description }) => [own, { type: "string", title, description, ...suggest(own) }]),
  );
  const required = parameters.filter((each) => each.required).map((each) => each.name);
  return draftOf(key, { type: "object", properties, required, additionalProperties: false });
}

/** Part of a text's schema that fetches the server's completions, if it has any. */
function suggesting(key, server, ref) {
  if (!serverNamed(server).info?.capabilities?.completions) return () => ({});
  return (name) => ({
    [SUGGEST](text) {
      const { [name]: _, ...others } = state.drafts.get(key)?.value ?? {};
      const context = Object.keys(others).length ? { context: { arguments: others } } : {};
      return api.complete(server, { ref, argument: { name, value: text }, ...context });
    },
  });
}

/** A tool's definition as the server has sent it. */
function definition({ tokens: _, ...tool }) {
  return html`<details class="definition">
    <summary>Definition</summary>
    <pre class="text code" tabindex="0">${visible(pretty(tool))}</pre>
  </details>`;
}

/** Edit the arguments of an earlier request again. */
export function repeat({ server, method, params }) {
  const named = (list) => serverNamed(server)?.[list].find(({ name }) => name === params.name);
  const key = (kind) => itemKey(kind, server, params.name);
  const tool = method === "tools/call" && named("tools");
  const prompt = method === "prompts/get" && named("prompts");
  if (tool) draftOf(key("tool"), tool.inputSchema, { check: checkOf(server, tool.name) }).load(params.arguments);
  if (prompt) promptDraft(key("prompt"), server, prompt.name, prompt.arguments ?? []).load(params.arguments);
}
