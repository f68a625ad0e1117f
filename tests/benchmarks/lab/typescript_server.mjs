// The tools of the lab served by the TypeScript SDK: `typescript_server.mjs FOLDER PORT WORKERS [sessions]`.
//
// FOLDER has the installed packages. The API is asked through undici, and Redis through ioredis.
import cluster from "node:cluster";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, port, workers, sessions] = process.argv.slice(2);
const { resolve } = createRequire(`${folder}/x.cjs`);
const from = async (name) => {
  const path = name.startsWith("@model") ? `${folder}/node_modules/${name}/dist/index.mjs` : resolve(name);
  const found = await import(pathToFileURL(path).href);
  return { ...found.default, ...found };
};
const { McpServer, createMcpHandler, isLegacyRequest } = await from("@modelcontextprotocol/server");
const { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } = await from("@modelcontextprotocol/node");
const z = await from("zod");
const { Pool } = await from("undici");
const { Redis } = await from("ioredis");

const api = new Pool(process.env.SHOP_API, { connections: 100 });
const redis = new Redis(process.env.SHOP_REDIS);
const KEPT_ORDERS = 10;

const asked = async (path, body) => {
  const headers = body ? { "content-type": "application/json" } : {};
  const response = await api.request({ path, method: body ? "POST" : "GET", headers, body });
  if (response.statusCode !== 200) throw new Error(`the API answered ${response.statusCode}`);
  return response.body.json();
};
const search = ({ query, limit }) => asked(`/products?q=${encodeURIComponent(query)}&limit=${limit}`);
const cart = async ({ user }) => {
  const commands = redis.pipeline().hgetall(`cart:${user}`).lrange(`orders:${user}`, 0, KEPT_ORDERS - 1);
  const [[, items], [, orders]] = await commands.exec();
  return { user, items, orders };
};
const checkout = async ({ user }) => {
  const items = await redis.hgetall(`cart:${user}`);
  const order = await asked("/orders", JSON.stringify({ user, items }));
  const key = `orders:${user}`;
  await redis.pipeline().lpush(key, order.id).ltrim(key, 0, KEPT_ORDERS - 1).incrby("revenue", order.total).exec();
  return order;
};
const distance = ({ one, other }) => {
  const row = Array.from({ length: other.length + 1 }, (_, place) => place);
  for (let number = 1; number <= one.length; number += 1) {
    let diagonal = row[0];
    row[0] = number;
    for (let place = 1; place <= other.length; place += 1) {
      const above = row[place];
      const changed = diagonal + (one[number - 1] === other[place - 1] ? 0 : 1);
      row[place] = Math.min(above + 1, row[place - 1] + 1, changed);
      diagonal = above;
    }
  }
  return { result: row[other.length] };
};

const user = z.object({ user: z.string() });
const TOOLS = [
  ["search", "Search the products of the shop.", z.object({ query: z.string(), limit: z.number().int().default(10) }), search],
  ["cart", "Return the cart of a user and the latest orders.", user, cart],
  ["checkout", "Order what is in a user's cart.", user, checkout],
  ["distance", "Return the edit distance of two texts.", z.object({ one: z.string(), other: z.string() }), distance],
];
const made = () => {
  const server = new McpServer({ name: "lab", version: "1" });
  for (const [name, description, inputSchema, run] of TOOLS) {
    server.registerTool(name, { description, inputSchema }, async (args) => {
      const result = await run(args);
      const text = JSON.stringify(name === "distance" ? result.result : result);
      return { content: [{ type: "text", text }], structuredContent: result };
    });
  }
  return server;
};

const known = new Map();
const opened = async () => {
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: sessions ? randomUUID : undefined,
    enableJsonResponse: true,
    onsessioninitialized: (id) => known.set(id, transport),
  });
  await made().connect(transport);
  return transport;
};
const modern = toNodeHandler(createMcpHandler(made, { legacy: "reject" }));
const read = async (request) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  return parts.length ? JSON.parse(Buffer.concat(parts).toString()) : undefined;
};
const serve = async (request, response) => {
  const body = await read(request);
  if (!(await isLegacyRequest(await toWebRequest(request, body), body))) return modern(request, response, body);
  const id = request.headers["mcp-session-id"];
  const transport = (id && known.get(id)) ?? (await opened());
  await transport.handleRequest(request, response, body);
};

if (cluster.isPrimary && Number(workers) > 1) {
  for (let number = 0; number < Number(workers); number += 1) cluster.fork();
} else {
  createServer(serve).listen(Number(port), "127.0.0.1");
}
