// One request: progress while it runs, then its outcome.

import { api } from "./api.js";
import { appUri, appView } from "./apps/view.js";
import { contentBlocks, repeatsStructure, resourceContents, structured } from "./content/content.js";
import { bytes, milliseconds, tokens, visible } from "./format.js";
import { pretty } from "./json.js";
import { jsonTree } from "./content/json-tree.js";
import { html, nothing } from "./lit.js";
import { snippet } from "./snippet.js";
import { attempt, changed, detailsOf, state } from "./store.js";

/** Chosen tab of each request, by number. */
const tabs = new Map();

/** The request with its outcome. */
export function requestView(request) {
  return html`<section class="outcome is-${request.state}" aria-live="polite" aria-label="Outcome">
    ${request.state === "running" ? running(request) : ended(request)}
  </section>`;
}

function running(request) {
  const { progress } = request;
  const hasTotal = progress?.total > 0;
  return html`<div class="running">
    ${hasTotal
      ? html`<progress max=${progress.total} .value=${Math.min(progress.progress, progress.total)}></progress>`
      : html`<progress></progress>`}
    <span>${progressText(progress)}</span>
    ${request.task ? html`<span class="muted">task <code>${visible(request.task)}</code></span>` : nothing}
    <button type="button" @click=${() => attempt(() => api.cancel(request.number))}>Cancel</button>
  </div>`;
}

function progressText(progress) {
  if (!progress) return "Running…";
  const amount = progress.total ? `${progress.progress} of ${progress.total}` : `${progress.progress}`;
  return progress.message ? `${visible(progress.message)} (${amount})` : amount;
}

const VERDICTS = { done: "Done", failed: "Failed", cancelled: "Cancelled" };

function ended(request) {
  const details = detailsOf(request);
  const views = [
    ["result", "Result"],
    ...(request.method === "tools/call" && appUri(request.server, request.params.name) ? [["app", "App"]] : []),
    ["json", "JSON"],
    ...(request.logs ? [["log", `Log (${request.logs})`]] : []),
    ...(request.method === "tools/call" ? [["reuse", "Reuse"]] : []),
  ];
  const chosen = tabs.get(request.number) ?? "result";
  return html`
    <header>
      <strong class="verdict">${VERDICTS[request.state]}</strong>
      <span class="figures">${figures(request)}</span>
      ${request.task ? html`<span class="muted">task</span>` : nothing}
      ${details?.answer || request.logs || request.method === "tools/call" ? tabList(request, views, chosen) : nothing}
    </header>
    ${details ? html`<div class="result">${details.problem ? unavailable(details) : panels[chosen](details)}</div>` : nothing}
  `;
}

export function figures({ ms, bytes: size, tokens: count }) {
  return [milliseconds(ms), ...(size ? [bytes(size), tokens(count)] : [])].join(" · ");
}

function tabList(request, views, chosen) {
  const choose = (view) => () => {
    tabs.set(request.number, view);
    changed();
  };
  return html`<div class="tabs">
    ${views.map(
      ([view, label]) => html`<button type="button" aria-pressed=${view === chosen} @click=${choose(view)}>${label}</button>`,
    )}
  </div>`;
}

function unavailable({ problem }) {
  return html`<p class="muted">The result cannot be shown: ${visible(problem)}</p>`;
}

const panels = {
  result: (details) => html`
    ${details.warning ? html`<p class="warning">${visible(details.warning)}</p>` : nothing}
    ${outcome(details)}
  `,
  json: (details) => html`<pre class="text code" tabindex="0">${details.answer ? visible(pretty(details.answer.result ?? details.answer)) : ""}</pre>`,
  log: (details) => html`<ol class="log">
    ${details.logs.map(
      ({ level, logger, data }) => html`<li>
        <span class="level ${level}">${visible(level)}</span> ${logger ? visible(logger) : nothing}
        ${typeof data === "string" ? visible(data) : jsonTree(data, { isFolded: true })}
      </li>`,
    )}
  </ol>`,
  app: (details) => appView(details),
  reuse: (details) => reuse(details),
};

/** What a reader wants to see of an answer. */
export function outcome({ frames, answer, method }) {
  if (!answer) return html`<p class="muted">There is no result.</p>`;
  if (answer.error) return failure(answer.error);
  const { result } = answer;
  if (method === "resources/read" && Array.isArray(result.contents)) {
    return result.contents.map((contents, index) => resource(contents, `${frames}/${index}`));
  }
  if (method === "prompts/get" && Array.isArray(result.messages)) {
    return html`${result.description ? html`<p>${visible(result.description)}</p>` : nothing}
    ${result.messages.map(
      ({ role, content }) => html`<h3>${visible(role)}</h3>${contentBlocks([content].flat())}`,
    )}`;
  }
  if (method !== "tools/call") return jsonTree(result);
  const blocks = Array.isArray(result.content) && !repeatsStructure(result) ? result.content : [];
  return html`<div class="columns">
    ${blocks.length ? html`<section>${contentBlocks(blocks)}</section>` : nothing} ${structured(result)}
    ${blocks.length || result.structuredContent != null ? nothing : html`<p class="muted">The result is empty.</p>`}
  </div>`;
}

/** Paths of the documents that the user has asked to see. */
const documents = new Set();

/** The contents of a resource; HTML also as a document, which has no origin, cannot reach the page and loads nothing. */
function resource(contents, address) {
  const show = () => {
    documents.add(address);
    changed();
  };
  const isHtml = /^text\/html\b/.test(contents?.mimeType ?? "") && typeof contents.text === "string";
  return html`<div class="block">
    ${!isHtml ? nothing : documents.has(address)
      ? html`<iframe title="document of the server" sandbox="allow-scripts" src=${address}></iframe>`
      : html`<button type="button" @click=${show}>Show as a document</button>`}
    ${resourceContents(contents)}
  </div>`;
}

function failure({ code, message, data }) {
  return html`<p class="error">
      ${code === undefined ? nothing : html`<span class="code">JSON-RPC error ${code}</span>`} ${visible(message)}
    </p>
    ${data === undefined || data === null ? nothing : jsonTree(data)}`;
}

/** Snippets of a call, by its number. */
const snippets = new Map();

function reuse({ number }) {
  if (!snippets.has(number)) {
    snippets.set(number, null);
    attempt(async () => snippets.set(number, await api.snippets(number)));
  }
  const found = snippets.get(number);
  if (!found) return nothing;
  return html`${snippet("As a command", found.line)} ${found.curl ? snippet("As curl", found.curl) : nothing}
    ${snippet("As a test for pytest", found.test)} ${snippet("As Python", found.python)}`;
}

/** The last request that was sent for an item. */
export function lastRequest(key) {
  const number = state.shown.get(key);
  const request = number === undefined ? undefined : state.requests.find((each) => each.number === number);
  return request ? requestView(request) : nothing;
}
