// A server of the TypeScript SDK 1.x (legacy, with sessions and resumable streams). Argument: the port.
import { randomUUID } from "node:crypto";
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { completable } from "@modelcontextprotocol/sdk/server/completable.js";
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { SubscribeRequestSchema, UnsubscribeRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";

const PORT = Number(process.argv[2]);
const BOARD = "note://board";

const sessions = new Map(); // id -> { server, transport, follows }
let hasGrown = false;

const text = (text) => ({ content: [{ type: "text", text }] });
const startingWith = (words) => (value) => words.filter((word) => word.startsWith(value));
const personSchema = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name"],
};
const valueSchema = { type: "object", properties: { value: { type: "string" } }, required: ["value"] };

// What a session sent, for a client that comes back. (The SDK's example of a store cannot replay the GET stream.)
class EventStore {
  events = []; // the id of an event is its place here

  async storeEvent(stream, message) {
    return String(this.events.push({ stream, message }) - 1);
  }

  async getStreamIdForEventId(id) {
    return this.events[Number(id)]?.stream;
  }

  async replayEventsAfter(lastId, { send }) {
    const stream = await this.getStreamIdForEventId(lastId);
    for (let id = Number(lastId) + 1; id < this.events.length; id++) {
      const event = this.events[id];
      if (event.stream === stream && event.message.jsonrpc) await send(String(id), event.message);
    }
    return stream;
  }
}

function build() {
  const server = new McpServer(
    { name: "ts1", version: "1" },
    { instructions: "be kind", capabilities: { logging: {}, resources: { subscribe: true } } },
  );
  const session = { server, follows: false };
  // A question with `related` goes out on the stream of the tool call, one without on the GET stream.
  const related = (extra) => ({ relatedRequestId: extra.requestId });

  server.registerTool("echo", { description: "Gives a text back", inputSchema: { text: z.string() } }, (args) =>
    text(args.text),
  );
  server.registerTool("ask_form", { description: "Asks who the user is" }, async () => {
    const answer = await server.server.elicitInput({ message: "who are you?", requestedSchema: personSchema });
    return text(answer.action === "accept" ? `accept:${answer.content.name}:${answer.content.age}` : answer.action);
  });
  server.registerTool("ask_url", { description: "Sends the user to a page" }, async (extra) => {
    const answer = await server.server.elicitInput(
      {
        mode: "url",
        message: "please consent",
        url: "https://example.com/consent",
        elicitationId: randomUUID(),
      },
      related(extra),
    );
    return text(`url:${answer.action}`);
  });
  server.registerTool("ask_twice", { description: "Asks two things one after the other" }, async (extra) => {
    const values = [];
    for (const message of ["first?", "second?"]) {
      const answer = await server.server.elicitInput({ message, requestedSchema: valueSchema }, related(extra));
      if (answer.action !== "accept") return text(answer.action);
      values.push(answer.content.value);
    }
    return text(values.join("+"));
  });
  server.registerTool("sample", { description: "Lets the client's model say hi" }, async () => {
    const answer = await server.server.createMessage({
      messages: [{ role: "user", content: { type: "text", text: "say hi" } }],
      maxTokens: 20,
    });
    return text(`sampled:${answer.content.text}`);
  });
  server.registerTool("roots", { description: "Lists the client's roots" }, async (extra) => {
    const answer = await server.server.listRoots(undefined, related(extra));
    return text("roots:" + answer.roots.map((root) => root.uri).join(","));
  });
  server.registerTool("progress", { description: "Reports three steps" }, async (extra) => {
    const progressToken = extra._meta?.progressToken;
    for (const progress of [1, 2, 3]) {
      if (progressToken === undefined) continue;
      await extra.sendNotification({
        method: "notifications/progress",
        params: { progressToken, progress, total: 3, message: `step ${progress}` },
      });
    }
    return text("done");
  });
  server.registerTool("log", { description: "Logs at three levels" }, async (extra) => {
    for (const [level, data] of [["debug", "d"], ["info", "i"], ["error", "e"]]) {
      await server.sendLoggingMessage({ level, data, logger: "t" }, extra.sessionId); // on the GET stream
    }
    return text("logged");
  });
  server.registerTool(
    "slow",
    { description: "Waits up to 20 s and keeps a diary in a file", inputSchema: { marker: z.string() } },
    async ({ marker }, { signal }) => {
      appendFileSync(marker, "started\n");
      const end = await sleep(20_000, "finished", { signal }).catch(() => "cancelled");
      appendFileSync(marker, end + "\n");
      return text(end);
    },
  );
  server.registerTool("grow", { description: "Adds a tool" }, async () => {
    for (const other of sessions.values()) {
      if (hasGrown) other.server.sendToolListChanged();
      else other.addGrown(); // this notifies too
    }
    hasGrown = true;
    return text("grown");
  });
  server.registerTool("touch", { description: "Changes the board" }, async () => {
    for (const other of sessions.values()) {
      if (other.follows) await other.server.server.sendResourceUpdated({ uri: BOARD });
    }
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
  const name = completable(z.string(), startingWith(["ana", "anton", "bob"]));
  server.registerPrompt("greet", { description: "Greets somebody", argsSchema: { name } }, ({ name }) => ({
    messages: [{ role: "user", content: { type: "text", text: `greet ${name}` } }],
  }));
  // McpServer keeps no subscriptions.
  server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
    if (params.uri === BOARD) session.follows = true;
    return {};
  });
  server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
    if (params.uri === BOARD) session.follows = false;
    return {};
  });
  return session;
}

async function open() {
  const session = build();
  session.transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: new EventStore(),
    onsessioninitialized: (id) => void sessions.set(id, session),
    onsessionclosed: (id) => void sessions.delete(id),
  });
  await session.server.connect(session.transport);
  return session;
}

const app = createMcpExpressApp();
app.all("/mcp", async (req, res) => {
  const id = req.headers["mcp-session-id"];
  const session = id ? sessions.get(id) : await open();
  if (!session) {
    return res.status(404).json({ jsonrpc: "2.0", id: null, error: { code: -32001, message: "Session not found" } });
  }
  await session.transport.handleRequest(req, res, req.body);
});
app.listen(PORT, "127.0.0.1");
