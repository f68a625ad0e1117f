// The TypeScript SDK's client: `typescript_client.mjs PACKAGE MODE SERVER` prints what it saw, as JSON.
//
// PACKAGE is the folder of the installed package. SERVER is a URL, or a JSON array with a command line.
import { pathToFileURL } from "node:url";

const [folder, mode, server] = process.argv.slice(2);
const from = (name) => import(pathToFileURL(`${folder}/dist/${name}.mjs`).href);
const { Client, StreamableHTTPClientTransport } = await from("index");
const { StdioClientTransport } = await from("stdio");

const [command, ...args] = server.startsWith("[") ? JSON.parse(server) : [];
const transport = command
  ? new StdioClientTransport({ command, args, stderr: "ignore" })
  : new StreamableHTTPClientTransport(new URL(server));
const client = new Client({ name: "tests", version: "1" }, { versionNegotiation: { mode } });
await client.connect(transport);
const read = async (uri) => (await client.readResource({ uri })).contents;
const complete = async (ref, name, value) =>
  (await client.complete({ ref, argument: { name, value } })).completion.values;
console.log(
  JSON.stringify({
    resources: (await client.listResources()).resources.map((each) => each.uri),
    templates: (await client.listResourceTemplates()).resourceTemplates.map((each) => each.uriTemplate),
    prompts: (await client.listPrompts()).prompts.map((each) => each.name),
    text: await read("notes://today"),
    blob: await read("notes://seal"),
    templated: await read("notes://by/ada?language=fr"),
    messages: (await client.getPrompt({ name: "review", arguments: { code: "x = 1", style: "strict" } })).messages,
    completed: await complete({ type: "ref/prompt", name: "review" }, "style", "s"),
    authors: await complete({ type: "ref/resource", uri: "notes://by/{author}{?language}" }, "author", "a"),
  }),
);
await client.close();
