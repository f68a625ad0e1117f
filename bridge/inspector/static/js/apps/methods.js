// What an app may request of the page. Whatever reaches a server or the web waits for the user's consent.

import { api } from "../api.js";
import { exchange, serverNamed } from "../store.js";
import { AppError } from "./host.js";

const INVALID_PARAMS = -32602;

/**
 * Functions by method for the app of a server.
 *
 * @param server  name of the server
 * @param consents  asks the user
 * @param shown  receives what the app tells the model: `context` and `messages`
 * @param running  numbers of the inspector's requests by the app's request ids
 */
export function methodsOf(server, consents, shown, running) {
  const forward = async (method, params, id) => {
    const onSent = (number) => running.set(id, number);
    const { result, error } = await exchange(server, method, params, { onSent }).finally(() => running.delete(id));
    if (!error) return result;
    const refusal = new AppError(error.message, error.code);
    refusal.data = error.data;
    throw refusal;
  };
  return {
    ping: () => ({}),
    async "tools/call"({ name, arguments: given = {} }, id) {
      const tool = serverNamed(server)?.tools.find((each) => each.name === name);
      if (!tool || !isForApps(tool)) throw new AppError(`the server has no tool ${name} for apps`, INVALID_PARAMS);
      if (given === null || typeof given !== "object") throw new AppError("the arguments are not an object", INVALID_PARAMS);
      await consents.ask({ key: `call ${name}`, text: "The app wants to call", subject: name, value: given, id });
      return forward("tools/call", { name, arguments: given }, id);
    },
    async "resources/read"({ uri }, id) {
      if (typeof uri !== "string") throw new AppError("the URI is not a text", INVALID_PARAMS);
      await consents.ask({ key: `read ${uri}`, text: "The app wants to read", subject: uri, id });
      return forward("resources/read", { uri }, id);
    },
    "resources/list": () => ({ resources: serverNamed(server)?.resources ?? [] }),
    "resources/templates/list": () => ({ resourceTemplates: serverNamed(server)?.templates ?? [] }),
    async "ui/open-link"({ url }, id) {
      if (typeof url !== "string" || !/^https?:\/\//i.test(url) || !URL.canParse(url)) {
        throw new AppError("only addresses of the web can be opened", INVALID_PARAMS);
      }
      const open = () => window.open(url, "_blank", "noopener,noreferrer");
      await consents.ask({ text: "The app wants to open", subject: url, label: "Open", act: open, id });
      return {};
    },
    "ui/message"(message) {
      shown.messages.push(message);
      if (shown.messages.length > 20) shown.messages.shift();
      return {};
    },
    "ui/update-model-context"(context) {
      shown.context = context;
      return {};
    },
    "ui/request-display-mode": () => ({ mode: "inline" }),
  };
}

/** True if a tool may be called by apps, which is the default. */
function isForApps(tool) {
  const visibility = tool._meta?.ui?.visibility;
  return !Array.isArray(visibility) || visibility.includes("app");
}

/** Cancel a request of the app that runs. */
export function cancelOf(running, consents) {
  return (id) => {
    consents.withdraw(id);
    if (running.has(id)) api.cancel(running.get(id)).catch(() => {}); // it has ended
  };
}
