// Host side of the protocol of apps: JSON-RPC messages between the page and the frame of one app.
// Source: MCP Apps (SEP-1865), 2026-01-26. Everything that arrives here is a server's.

import { compact } from "../json.js";

const VERSION = "2026-01-26";
const METHOD_NOT_FOUND = -32601;
const INVALID_PARAMS = -32602;
const FAILED = -32000;
const MAX_MESSAGES = 200;
const MAX_OPEN_REQUESTS = 20;
const TEARDOWN_MS = 500;
const MIN_HEIGHT = 60;
const MAX_HEIGHT = 2000;

export class AppError extends Error {
  constructor(message, code = FAILED) {
    super(message);
    this.code = code;
  }
}

export class AppHost {
  /**
   * @param input  arguments of the call that the app belongs to
   * @param outcome  the call's `{result}` or `{error}`
   * @param context  function that returns the host context
   * @param methods  what the app may request: functions by method, which return results or throw an `AppError`
   * @param cancel  function that cancels a request by its id
   * @param post  function that posts a message to the frame
   * @param changed  function that draws the page
   */
  constructor({ input, outcome, context, methods, sandbox, cancel, post, changed }) {
    Object.assign(this, { input, outcome, context, methods, sandbox, cancel, post, changed });
    this.messages = [];
    this.height = null;
    this.isReady = false;
    this.isClosed = false;
    this.openRequests = 0;
    this.answers = new Map();
    this.lastId = 0;
  }

  /** Take what the frame has posted. */
  receive(message) {
    const plain = plainJson(message);
    if (this.isClosed || plain === undefined || plain.jsonrpc !== "2.0") return;
    this.record("app", plain);
    if (typeof plain.method !== "string") this.answers.get(plain.id)?.(plain);
    else if (plain.id === undefined) own(this.notifications, plain.method)?.(Object(plain.params));
    else this.answer(plain);
    this.changed();
  }

  async answer({ id, method, params }) {
    if (this.openRequests >= MAX_OPEN_REQUESTS) return this.refuse(id, new AppError("too many requests are open"));
    this.openRequests += 1;
    try {
      const handler = method === "ui/initialize" ? () => this.initialized() : own(this.methods, method);
      if (!handler) throw new AppError(`the inspector does not support ${method}`, METHOD_NOT_FOUND);
      if (params !== undefined && (params === null || typeof params !== "object")) {
        throw new AppError("the parameters are not an object", INVALID_PARAMS);
      }
      this.send({ id, result: (await handler(params ?? {}, id)) ?? {} });
    } catch (error) {
      this.refuse(id, error);
    } finally {
      this.openRequests -= 1;
      this.changed();
    }
    return undefined;
  }

  refuse(id, error) {
    this.send({ id, error: { code: error.code ?? FAILED, message: error.message, ...(error.data === undefined ? {} : { data: error.data }) } });
  }

  initialized() {
    return {
      protocolVersion: VERSION,
      hostInfo: { name: "bridge-inspect", version: "1" },
      hostCapabilities: { openLinks: {}, serverTools: {}, serverResources: {}, logging: {}, message: { text: {} }, updateModelContext: { text: {}, structuredContent: {} }, sandbox: this.sandbox },
      hostContext: this.context(),
    };
  }

  notifications = {
    "ui/notifications/initialized": () => {
      if (this.isReady) return;
      this.isReady = true;
      const { result, error } = this.outcome;
      this.notify("ui/notifications/tool-input", { arguments: this.input });
      if (result) this.notify("ui/notifications/tool-result", result);
      else this.notify("ui/notifications/tool-cancelled", { reason: error?.message ?? "the call was cancelled" });
    },
    "ui/notifications/size-changed": ({ height }) => {
      if (Number.isFinite(height)) this.height = Math.min(MAX_HEIGHT, Math.max(MIN_HEIGHT, Math.ceil(height)));
    },
    "notifications/cancelled": ({ requestId }) => this.cancel(requestId),
  };

  /** Report a change of the host context. */
  contextChanged(part) {
    if (this.isReady) this.notify("ui/notifications/host-context-changed", part);
  }

  /** Announce the end to the app, and wait for its answer, but not long. */
  async close(reason) {
    if (this.isClosed) return;
    if (this.isReady) {
      const id = `teardown-${++this.lastId}`;
      const answered = new Promise((resolve) => this.answers.set(id, resolve));
      this.send({ id, method: "ui/resource-teardown", params: { reason } });
      await Promise.race([answered, new Promise((resolve) => setTimeout(resolve, TEARDOWN_MS))]);
    }
    this.isClosed = true;
  }

  notify(method, params) {
    this.send({ method, params });
  }

  send(message) {
    const whole = plainJson({ jsonrpc: "2.0", ...message });
    this.record("host", whole);
    this.post(whole);
  }

  record(from, message) {
    this.messages.push({ from, message });
    if (this.messages.length > MAX_MESSAGES) this.messages.shift();
  }
}

/** A property of the object itself, not of its prototype. */
const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);

/** A message as JSON has it; undefined for what is no object of JSON. */
function plainJson(message) {
  try {
    const plain = JSON.parse(compact(message));
    return plain !== null && typeof plain === "object" ? plain : undefined;
  } catch {
    return undefined;
  }
}
