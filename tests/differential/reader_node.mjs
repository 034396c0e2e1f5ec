// Reads messages as servers of the TypeScript SDK do: 1.x, then 2.x. What the lines are says `reading.py`.
// Argument: the folder with the packages.
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(resolve(process.argv[2], "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)));
// The packages resolve to their CommonJS builds here, which are made from the same sources.
const ts1 = await load("@modelcontextprotocol/sdk/types.js");
const ts2 = await load("@modelcontextprotocol/core/internal");

const REFUSED = "refused";
const bits = new DataView(new ArrayBuffer(8));

function quoted(text) {
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

function double(number) {
  bits.setFloat64(0, number + 0);
  return "n" + bits.getBigUint64(0).toString(16).padStart(16, "0");
}

// In the order of code points, which is not that of UTF-16.
function compare([one], [other]) {
  const [a, b] = [[...one], [...other]];
  for (let at = 0; at < Math.min(a.length, b.length); at++) {
    const difference = a[at].codePointAt(0) - b[at].codePointAt(0);
    if (difference) return difference;
  }
  return a.length - b.length;
}

function canonical(value) {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return quoted(value);
  if (typeof value === "number") return double(value);
  if (Array.isArray(value)) return "[" + value.map(canonical).join(",") + "]";
  const members = Object.entries(value).sort(compare);
  return "{" + members.map(([key, inner]) => quoted(key) + ":" + canonical(inner)).join(",") + "}";
}

function line(kind, method, id, { name, args, uri } = {}) {
  const fields = [method, id, name, args, uri];
  return [kind, ...fields.map((value) => (value === undefined || value === null ? "-" : canonical(value)))].join("\t");
}

function read(sdk, text) {
  const message = sdk.JSONRPCMessageSchema.parse(JSON.parse(text));
  if (!("method" in message)) return line("response", undefined, message.id);
  if (!("id" in message)) return line("notification", message.method);
  const { method, id } = message;
  switch (method) {
    case "tools/call": {
      const { name, arguments: args } = sdk.CallToolRequestSchema.parse(message).params;
      return line("request", method, id, { name, args });
    }
    case "prompts/get": {
      const { name, arguments: args } = sdk.GetPromptRequestSchema.parse(message).params;
      return line("request", method, id, { name, args });
    }
    case "resources/read":
      // `McpServer` looks the resource up by this form.
      return line("request", method, id, { uri: new URL(sdk.ReadResourceRequestSchema.parse(message).params.uri).toString() });
    case "resources/subscribe":
      return line("request", method, id, { uri: sdk.SubscribeRequestSchema.parse(message).params.uri });
    case "resources/unsubscribe":
      return line("request", method, id, { uri: sdk.UnsubscribeRequestSchema.parse(message).params.uri });
    case "completion/complete": {
      const { ref } = sdk.CompleteRequestSchema.parse(message).params;
      return line("request", method, id, { name: ref.type === "ref/prompt" ? ref.name : ref.uri });
    }
    case "tasks/get":
    case "tasks/result":
    case "tasks/update":
    case "tasks/cancel":
      return line("request", method, id, { name: message.params?.taskId });
    default:
      return line("request", method, id);
  }
}

let written = [];
function flush() {
  process.stdout.write(written.join(""));
  written = [];
}

const decoder = new TextDecoder();
for await (const input of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  if (!input) {
    flush();
    continue;
  }
  const text = decoder.decode(Buffer.from(input.slice(input.indexOf(" ") + 1), "hex"));
  const found = [ts1, ts2].map((sdk) => {
    try {
      return read(sdk, text);
    } catch {
      return REFUSED;
    }
  });
  written.push(found.join("\x1f") + "\n");
}
flush();
