// The app of a call, in a frame that has no origin: its document is a server's.

import { api } from "../api.js";
import { contentBlocks } from "../content/content.js";
import { visible } from "../format.js";
import { jsonTree } from "../content/json-tree.js";
import { html, nothing } from "../lit.js";
import { changed, exchange, serverNamed } from "../store.js";
import { isDark, onThemeChange } from "../theme.js";
import { Consents } from "./consents.js";
import { AppHost } from "./host.js";
import { cancelOf, methodsOf } from "./methods.js";

const REACHES = {
  connectDomains: "connect to",
  resourceDomains: "load from",
  frameDomains: "show pages of",
  baseUriDomains: "resolve links by",
};

/** Apps by the number of the call that they belong to. */
const apps = new Map();
/** Apps that the page being drawn shows. */
let shownNow = new Set();

/** URI of the app of a tool; undefined if it has none. */
export function appUri(server, name) {
  const meta = serverNamed(server)?.tools.find((tool) => tool.name === name)?._meta;
  const uri = meta?.ui?.resourceUri ?? meta?.["ui/resourceUri"];
  return typeof uri === "string" && uri.startsWith("ui://") ? uri : undefined;
}

/** The app of a call that has ended. */
export function appView(details) {
  const app = apps.get(details.number) ?? begun(details);
  shownNow.add(app);
  if (app.problem) return html`<p class="error">${visible(app.problem)}</p>`;
  if (!app.wants) return html`<p class="muted">Reading the app…</p>`;
  return html`<div class="app">
    ${wishes(app)} ${app.isAllowed ? opened(app) : html`<button type="button" @click=${() => allow(app)}>Show the app</button>`}
  </div>`;
}

function begun({ number, server, params, answer }) {
  const app = { number, server, tool: params.name, consents: new Consents(), shown: { messages: [], context: null } };
  apps.set(number, app);
  read(app, params.arguments, answer ?? {});
  return app;
}

/** Read the app's resource, which is shown when the user asks for it: no policy of browsers keeps it from every host. */
async function read(app, input, outcome) {
  try {
    const { number, error } = await exchange(app.server, "resources/read", { uri: appUri(app.server, app.tool) });
    if (error) throw new Error(error.message);
    app.wants = await api.app(number);
    app.host = hostOf(app, input, outcome);
  } catch (error) {
    app.problem = error.message;
  }
  changed();
}

function hostOf(app, input, outcome) {
  const running = new Map();
  const { permissions, domains } = app.wants;
  return new AppHost({
    input,
    outcome,
    context: () => contextOf(app),
    methods: methodsOf(app.server, app.consents, app.shown, running),
    sandbox: { permissions: Object.fromEntries(permissions.map((name) => [name, {}])), csp: domains },
    cancel: cancelOf(running, app.consents),
    post: (message) => frameOf(app)?.contentWindow.postMessage(message, "*"), // its origin is opaque
    changed,
  });
}

function contextOf(app) {
  const { tokens: _, ...tool } = serverNamed(app.server)?.tools.find(({ name }) => name === app.tool) ?? {};
  return {
    toolInfo: { tool },
    theme: isDark() ? "dark" : "light",
    displayMode: "inline",
    availableDisplayModes: ["inline"],
    containerDimensions: { width: frameOf(app)?.clientWidth ?? 600, maxHeight: 2000 },
    locale: navigator.language,
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    userAgent: "bridge-inspect",
    platform: "web",
  };
}

const frameOf = ({ number }) => document.querySelector(`iframe[data-app="${number}"]`);

function allow(app) {
  app.isAllowed = true;
  changed();
}

/** What the app wants to reach. */
function wishes({ wants }) {
  const reaches = Object.entries(REACHES).filter(([kind]) => wants.domains[kind]);
  const permissions = wants.permissions.join(", ");
  return html`<p class="muted">
      ${reaches.length
        ? reaches.map(([kind, verb]) => html`It may ${verb} ${wants.domains[kind].map((domain) => html`<code>${visible(domain)}</code> `)}. `)
        : "It declares no domains. "}
      Browsers let it connect to other hosts without a request (preconnect, WebRTC).
      ${permissions ? `It may ask for: ${permissions}.` : nothing}
    </p>
    ${wants.refused.length
      ? html`<p class="warning">Left out, since these are no origins: ${wants.refused.map((each) => html`<code>${visible(each)}</code> `)}</p>`
      : nothing}`;
}

function opened(app) {
  const { host, number, shown } = app;
  return html`
    ${app.consents.view()}
    <iframe
      title="app of the server" data-app=${number} sandbox="allow-scripts allow-forms" allow=${app.wants.allow}
      src=${app.wants.frame} height=${host.height ?? 360}
    ></iframe>
    ${shown.context ? html`<h3>For the model</h3>${told(shown.context)}` : nothing}
    ${shown.messages.map((message) => html`<h3>Message to the chat</h3>${told(message)}`)}
    <details class="definition">
      <summary>Messages of the app (${host.messages.length})</summary>
      <ol>${host.messages.map(exchanged)}</ol>
    </details>
  `;
}

/** A message between the app and the page. */
function exchanged({ from, message }) {
  const what = message.method ?? ("error" in message ? "error" : "result");
  return html`<li>
    <span class="arrow" role="img" aria-label=${from}>${from === "app" ? "←" : "→"}</span>
    <div><b>${visible(what)}</b> ${jsonTree(message, { isFolded: true })}</div>
  </li>`;
}

/** Content that an app sends to the model. */
function told({ content, structuredContent }) {
  return html`${content ? contentBlocks([content].flat()) : nothing}
    ${structuredContent === undefined ? nothing : jsonTree(structuredContent)}`;
}

/** Prepare for a drawing of the page: the apps that it shows are noted. */
export function beginDrawing() {
  shownNow = new Set();
}

/** Close the apps that the page no longer shows; null if there are none, else a promise of their end. */
export function closeHidden() {
  const hidden = [...apps.values()].filter((app) => !shownNow.has(app) && app.isAllowed && frameOf(app));
  if (!hidden.length) return null;
  return Promise.all(
    hidden.map(async (app) => {
      apps.delete(app.number);
      await app.host.close("the app is no longer shown");
    }),
  );
}

addEventListener("message", ({ source, data }) => {
  const app = [...apps.values()].find((each) => frameOf(each)?.contentWindow === source);
  app?.host.receive(data);
});
onThemeChange(() => {
  for (const { host } of apps.values()) host?.contextChanged({ theme: isDark() ? "dark" : "light" });
});
