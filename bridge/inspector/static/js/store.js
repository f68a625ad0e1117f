// State of the page: what the inspector sends, and what the user has chosen.

import { ApiError, api } from "./api.js";

const MAX_MESSAGES = 1000;
const MAX_REQUESTS = 200;

export const state = {
  connected: false,
  servers: [],
  requests: [],
  questions: [],
  messages: [],
  /** File that servers can be saved to; null for none. */
  file: null,
  /** Name of the model that proposes answers; null for none. */
  model: null,
  /** Requests with their answers by number; null while one is fetched, and one with a `problem` if it could not be. */
  details: new Map(),
  /** Texts of messages that the user has opened, by number. */
  bodies: new Map(),
  /** Number of the last request of each tool, resource and prompt, by `itemKey`. */
  shown: new Map(),
  /** Arguments that are being edited, by `itemKey`. */
  drafts: new Map(),
  search: "",
  filter: { server: "", direction: "", text: "" },
  problem: "",
};

let redraw = () => {};
let isWaiting = false;

/** Set the function that draws the page. */
export function drawWith(draw) {
  redraw = draw;
}

/** Draw the page soon, once for all changes. */
export function changed() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    redraw();
  });
}

/** Draw changes that wait, so that a key acts on what was typed before it. */
export function drawNow() {
  if (isWaiting) redraw();
}

/** Key of a tool, resource, template or prompt. */
export function itemKey(kind, server, name) {
  return JSON.stringify([kind, server, name]);
}

export function serverNamed(name) {
  return state.servers.find((server) => server.name === name);
}

export function requestNumbered(number) {
  return state.requests.find((request) => request.number === number);
}

/** Run an action of the user; its error is shown. */
export async function attempt(action) {
  state.problem = "";
  try {
    return await action();
  } catch (error) {
    state.problem = error instanceof ApiError ? error.message : `The inspector does not respond: ${error.message}`;
    return undefined;
  } finally {
    changed();
  }
}

/** Send a request for an item, and show its outcome there. */
export async function send(key, server, method, params) {
  const request = await attempt(() => api.send(server, method, params));
  if (request) {
    state.shown.set(key, request.number);
    upsert(state.requests, "number", request, { keepsPresent: true });
  }
  changed();
}

/** Fetch the answer of a request that has ended. */
async function fetchDetails(number) {
  try {
    state.details.set(number, await api.request(number));
  } catch (error) {
    state.details.set(number, { problem: error.message }); // the inspector keeps a limited number
  }
  changed();
}

/** Functions that wait for the end of a request, by its number. */
const waiting = new Map();

/** Send a request, and wait for its answer: `{result}` or `{error}`. */
export async function exchange(server, method, params, { onSent = () => {} } = {}) {
  const request = await api.send(server, method, params);
  onSent(request.number);
  upsert(state.requests, "number", request, { keepsPresent: true });
  await new Promise((resolve) => {
    waiting.set(request.number, resolve);
    wake();
  });
  const { answer } = await api.request(request.number);
  return { number: request.number, ...(answer ?? { error: { message: "the request was cancelled" } }) };
}

/** Continue what waits for requests that have ended, or are forgotten. */
function wake() {
  for (const [number, resolve] of waiting) {
    if (requestNumbered(number)?.state === "running") continue;
    waiting.delete(number);
    resolve();
  }
}

/** The whole request, fetched when it is first needed; undefined until then. */
export function detailsOf(request) {
  const present = state.details.get(request.number);
  if (present === undefined && request.state !== "running") {
    state.details.set(request.number, null);
    fetchDetails(request.number);
  }
  return present ?? undefined;
}

/** Text of a message, fetched when it is first needed. */
export function bodyOf(message) {
  if (!state.bodies.has(message.number)) {
    state.bodies.set(message.number, "");
    api.message(message.number).then(
      (text) => {
        state.bodies.set(message.number, text);
        changed();
      },
      () => {
        state.bodies.set(message.number, '"this message is no longer kept"');
        changed();
      },
    );
  }
  return state.bodies.get(message.number);
}

function upsert(list, key, item, { keepsPresent = false } = {}) {
  const index = list.findIndex((each) => each[key] === item[key]);
  if (index < 0) list.push(item);
  else if (!keepsPresent) list[index] = item;
}

const reducers = {
  state(data) {
    Object.assign(state, data);
    state.details.clear();
    state.bodies.clear();
  },
  server: (server) => upsert(state.servers, "name", server),
  request(request) {
    upsert(state.requests, "number", request);
    if (state.requests.length <= MAX_REQUESTS) return;
    const oldest = state.requests.findIndex((each) => each.state !== "running" && each !== request);
    if (oldest >= 0) state.details.delete(state.requests.splice(oldest, 1)[0].number);
  },
  question: (question) => upsert(state.questions, "number", question),
  "question-over"({ number }) {
    state.questions = state.questions.filter((question) => question.number !== number);
  },
  message(message) {
    state.messages.push(message);
    if (state.messages.length > MAX_MESSAGES) state.bodies.delete(state.messages.shift().number);
  },
};

/** Take an event of the inspector. */
export function receive(kind, data) {
  reducers[kind](data);
  wake();
  changed();
}
