// A server of the TypeScript SDK 2.x. Arguments: the port, and the eras it speaks (modern, legacy or both).
import { randomUUID } from "node:crypto";
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import {
  localhostHostValidation,
  localhostOriginValidation,
  NodeStreamableHTTPServerTransport,
  toNodeHandler,
  toWebRequest,
} from "@modelcontextprotocol/node";
import {
  acceptedContent,
  completable,
  createMcpHandler,
  inputRequired,
  isLegacyRequest,
  McpServer,
  ResourceTemplate,
} from "@modelcontextprotocol/server";
import { z } from "zod";

const PORT = Number(process.argv[2]);
const ERA = process.argv[3] ?? "both";
const BOARD = "note://board";

const sessions = new Map(); // the legacy sessions: id -> { server, transport, follows }
let hasGrown = false;

const text = (text) => ({ content: [{ type: "text", text }] });
const startingWith = (words) => (value) => words.filter((word) => word.startsWith(value));
const person = z.object({ name: z.string(), age: z.int().optional() });
const value = z.object({ value: z.string() });

// Builds a server for one modern request, or for one legacy session.
// The tools ask by returning `inputRequired`; in a legacy session the SDK turns that into requests of the server.
function build(session = {}) {
  const server = new McpServer(
    { name: "ts2", version: "1" },
    {
      instructions: "be kind",
      capabilities: { logging: {}, tools: { listChanged: true }, resources: { subscribe: true } },
    },
  );
  session.server = server;
  const ask = (key, request, requestState) => inputRequired({ inputRequests: { [key]: request }, requestState });

  server.registerTool(
    "echo",
    { description: "Gives a text back", inputSchema: z.object({ text: z.string() }) },
    (args) => text(args.text),
  );
  server.registerTool("ask_form", { description: "Asks who the user is" }, (ctx) => {
    const answer = ctx.mcpReq.inputResponses?.who;
    if (!answer) return ask("who", inputRequired.elicit({ message: "who are you?", requestedSchema: person }));
    if (answer.action !== "accept") return text(answer.action);
    const { name, age } = acceptedContent(ctx.mcpReq.inputResponses, "who", person);
    return text(`accept:${name}:${age}`);
  });
  server.registerTool("ask_url", { description: "Sends the user to a page" }, (ctx) => {
    const answer = ctx.mcpReq.inputResponses?.consent;
    const request = inputRequired.elicitUrl({ message: "please consent", url: "https://example.com/consent" });
    return answer ? text(`url:${answer.action}`) : ask("consent", request);
  });
  server.registerTool("ask_twice", { description: "Asks two things one after the other" }, (ctx) => {
    const { inputResponses } = ctx.mcpReq;
    const question = (message) => inputRequired.elicit({ message, requestedSchema: value });
    const second = acceptedContent(inputResponses, "second", value);
    if (second) return text(`${ctx.mcpReq.requestState()}+${second.value}`);
    const first = acceptedContent(inputResponses, "first", value);
    if (first) return ask("second", question("second?"), first.value);
    const refused = inputResponses?.first ?? inputResponses?.second;
    return refused ? text(refused.action) : ask("first", question("first?"));
  });
  server.registerTool("sample", { description: "Lets the client's model say hi" }, (ctx) => {
    const answer = ctx.mcpReq.inputResponses?.model;
    if (answer) return text(`sampled:${answer.content.text}`);
    const messages = [{ role: "user", content: { type: "text", text: "say hi" } }];
    return ask("model", inputRequired.createMessage({ messages, maxTokens: 20 }));
  });
  server.registerTool("roots", { description: "Lists the client's roots" }, (ctx) => {
    const answer = ctx.mcpReq.inputResponses?.roots;
    if (!answer) return ask("roots", inputRequired.listRoots());
    return text("roots:" + answer.roots.map((root) => root.uri).join(","));
  });
  server.registerTool("progress", { description: "Reports three steps" }, async (ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (const progress of [1, 2, 3]) {
      if (progressToken === undefined) continue;
      await ctx.mcpReq.notify({
        method: "notifications/progress",
        params: { progressToken, progress, total: 3, message: `step ${progress}` },
      });
    }
    return text("done");
  });
  server.registerTool("log", { description: "Logs at three levels" }, async (ctx) => {
    await ctx.mcpReq.log("debug", "d", "t");
    await ctx.mcpReq.log("info", "i", "t");
    await ctx.mcpReq.log("error", "e", "t");
    return text("logged");
  });
  server.registerTool(
    "slow",
    { description: "Waits up to 20 s and keeps a diary in a file", inputSchema: z.object({ marker: z.string() }) },
    async ({ marker }, ctx) => {
      appendFileSync(marker, "started\n");
      const { signal } = ctx.mcpReq;
      const end = await sleep(20_000, "finished", { signal }).catch(() => "cancelled");
      appendFileSync(marker, end + "\n");
      return text(end);
    },
  );
  server.registerTool("grow", { description: "Adds a tool" }, () => {
    for (const other of sessions.values()) {
      if (hasGrown) other.server.sendToolListChanged();
      else other.addGrown(); // this notifies too
    }
    hasGrown = true;
    modern.notify.toolsChanged();
    return text("grown");
  });
  server.registerTool("touch", { description: "Changes the board" }, async () => {
    for (const other of sessions.values()) {
      if (other.follows) await other.server.server.sendResourceUpdated({ uri: BOARD });
    }
    modern.notify.resourceUpdated(BOARD);
    return text("touched");
  });
  session.addGrown = () =>
    server.registerTool("grown", { description: "The tool that `grow` adds" }, () => text("grown"));
  if (hasGrown) session.addGrown();

  const mimeType = "text/plain";
  server.registerResource("board", BOARD, { mimeType }, (uri) => ({
    contents: [{ uri: uri.href, mimeType, text: "board" }],
  }));
  const template = new ResourceTemplate("note://{name}", {
    list: undefined,
    complete: { name: startingWith(["board", "other"]) },
  });
  server.registerResource("note", template, { mimeType }, (uri, { name }) => ({
    contents: [{ uri: uri.href, mimeType, text: `note ${name}` }],
  }));
  const argsSchema = z.object({ name: completable(z.string(), startingWith(["ana", "anton", "bob"])) });
  server.registerPrompt("greet", { description: "Greets somebody", argsSchema }, ({ name }) => ({
    messages: [{ role: "user", content: { type: "text", text: `greet ${name}` } }],
  }));
  // McpServer keeps no legacy subscriptions.
  server.server.setRequestHandler("resources/subscribe", ({ params }) => {
    if (params.uri === BOARD) session.follows = true;
    return {};
  });
  server.server.setRequestHandler("resources/unsubscribe", ({ params }) => {
    if (params.uri === BOARD) session.follows = false;
    return {};
  });
  return session;
}

const modern = createMcpHandler(() => build().server, { legacy: "reject" });

const serveModern = toNodeHandler(modern);

function refuse(res, status, message) {
  const error = { code: status === 404 ? -32001 : -32600, message };
  res.writeHead(status, { "Content-Type": "application/json" });
  res.end(JSON.stringify({ jsonrpc: "2.0", id: null, error }));
}

async function serveLegacy(req, res, body) {
  const id = req.headers["mcp-session-id"];
  const session = id ? sessions.get(id) : build();
  if (!session) return refuse(res, 404, "Session not found");
  if (!id) {
    session.transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, session),
      onsessionclosed: (id) => void sessions.delete(id),
    });
    await session.server.connect(session.transport);
  }
  await session.transport.handleRequest(req, res, body);
}

const hostAllowed = localhostHostValidation();
const originAllowed = localhostOriginValidation();
createServer(async (req, res) => {
  if (!hostAllowed(req, res) || !originAllowed(req, res)) return;
  if (req.url !== "/mcp") return res.writeHead(404).end();
  if (ERA === "modern") return serveModern(req, res);
  if (ERA === "legacy") {
    const version = req.headers["mcp-protocol-version"];
    if (version === "2026-07-28") return refuse(res, 400, `Unsupported protocol version: ${version}`);
    return serveLegacy(req, res);
  }
  const request = await toWebRequest(req);
  const isLegacy = await isLegacyRequest(request);
  const body = req.method === "POST" ? await request.json().catch(() => undefined) : undefined;
  await (isLegacy ? serveLegacy : serveModern)(req, res, body);
}).listen(PORT, "127.0.0.1");
