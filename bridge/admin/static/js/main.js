// The page of the administration: the state of a server, fetched every two seconds while the page is visible.

import { visible } from "../inspector/js/format.js";
import { html, nothing, render } from "../inspector/js/lit.js";
import { changed, drawWith } from "../inspector/js/store.js";
import { themeSwitch } from "../inspector/js/theme.js";
import { act as request, fetchState, keep, key, RefusedError } from "./client.js";
import * as tables from "./tables.js";

const INTERVAL_MS = 2000;
const VIEWS = {
  now: ["Now", tables.servers, tables.calls, tables.tasks],
  recent: ["Recent", tables.recent, tables.refusals],
  callers: ["Callers", tables.teams, tables.limits, tables.keys, tables.sessions],
  tools: ["Tools", tables.profiles, tables.tools],
};
const CONFIRMED = { drain: "End this server? Calls that run may end; no further ones are accepted." };

let state = null;
let problem = "";
let isAsked = null;

const currentView = () => (location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "now");

async function refresh() {
  if (key() === null) return;
  try {
    state = await fetchState();
    if (problem === LOST) problem = "";
  } catch (error) {
    if (error instanceof RefusedError) {
      keep(null);
      state = null;
      problem = error.message;
    } else {
      problem = LOST;
    }
  }
  changed();
}

const LOST = "The server does not answer; the page shows its last state.";

async function act(action, target = {}) {
  if (action in CONFIRMED && isAsked !== action) {
    isAsked = action;
    changed();
    return;
  }
  isAsked = null;
  try {
    problem = (await request(action, target)) ?? "";
  } catch (error) {
    problem = error instanceof RefusedError ? error.message : LOST;
  }
  await refresh();
}

function login() {
  const submit = (event) => {
    event.preventDefault();
    keep(new FormData(event.target).get("key"));
    problem = "";
    refresh();
  };
  return html`<main class="login">
    <h1>bridge <span class="muted">admin</span></h1>
    ${alert()}
    <form @submit=${submit} class="fields">
      <label class="field">Key of an operator <input type="password" name="key" required autocomplete="off"></label>
      <button class="primary">Open</button>
    </form>
  </main>`;
}

const alert = () => (problem ? html`<p class="error" role="alert">${visible(problem)}</p>` : nothing);

function bar(view) {
  const leave = () => {
    keep(null);
    state = null;
    changed();
  };
  return html`<header class="top">
    <h1>${visible(state.name)} <span>admin</span></h1>
    <nav aria-label="Views">
      ${Object.entries(VIEWS).map(
        ([name, [label]]) => html`<a href="#${name}" aria-current=${name === view ? "page" : nothing}>${label}</a>`,
      )}
    </nav>
    <div class="tools">
      <span role="status"><span class="dot ${state.state}"></span> ${state.state}, ${tables.age(state.uptimeSeconds)}</span>
      <button type="button" @click=${() => act("reload")}>Reload</button>
      <button type="button" @click=${() => act("drain")}>Drain</button>
      <button type="button" class="quiet" @click=${leave}>Close</button> ${themeSwitch()}
    </div>
  </header>`;
}

function question() {
  if (isAsked === null) return nothing;
  const stop = () => {
    isAsked = null;
    changed();
  };
  return html`<div class="warning" role="alertdialog" aria-label="Confirm">
    <p>${CONFIRMED[isAsked]}</p>
    <p class="actions">
      <button type="button" class="primary" @click=${() => act(isAsked)}>Yes</button>
      <button type="button" @click=${stop}>No</button>
    </p>
  </div>`;
}

function page() {
  if (state === null) return key() === null ? login() : html`<main class="login">${alert()}<p>Connecting…</p></main>`;
  const view = currentView();
  const [, ...parts] = VIEWS[view];
  return html`${bar(view)}
    <main class="admin" id="main">
      ${alert()} ${question()}
      ${state.missing.length ? html`<p class="warning">${visible(state.missing.join("; "))}</p>` : nothing}
      ${parts.map((part) => part(state, act))}
    </main>`;
}

drawWith(() => render(page(), document.getElementById("page")));
addEventListener("hashchange", changed);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
setInterval(() => document.hidden || refresh(), INTERVAL_MS);
changed();
refresh();
