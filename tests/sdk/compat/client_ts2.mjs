// A client of the TypeScript SDK 2.x (both eras).
// Arguments: URL, era, API key, checks (separated by commas), a file for `cancel`.
// Prints a line of JSON per check. The exit code is 0 when all hold, 1 when one does not, 3 when one cannot be done.
import { existsSync, readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, LOG_LEVEL_META_KEY, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, era, key, checks, extra] = process.argv.slice(2);
const BOARD = "note://board";
const modern = era === "modern";
const cannot = modern ? { ping: "the modern era has no ping" } : {};

// Connects, runs `use` with the client and what its user saw, and disconnects.
async function connected(use, { action = "accept", asks = true, approves = true } = {}) {
  const seen = { logs: [], urls: [], asked: [], updated: [], toolsChanged: false, streamOpen: false };
  const watched = async (input, init) => {
    const response = await fetch(input, init);
    if (init?.method === "GET") seen.streamOpen = true;
    return response;
  };
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: { Authorization: `Bearer ${key}` } },
    fetch: watched,
  });
  const capabilities = { sampling: {}, roots: {}, ...(asks && { elicitation: { form: {}, url: {} } }) };
  const client = new Client(
    { name: "ts2", version: "1" },
    { capabilities, versionNegotiation: { mode: modern ? { pin: "2026-07-28" } : "legacy" } },
  );
  const answers = { "who are you?": { name: "ana", age: 7 }, "first?": { value: "1" }, "second?": { value: "2" } };
  if (asks) {
    client.setRequestHandler("elicitation/create", ({ params }) => {
      if (params.mode === "url") seen.urls.push(params.url);
      else if (params.requestedSchema.properties.approve) {
        seen.asked.push(params.message);
        return { action, content: { approve: approves } };
      }
      return { action, ...(action === "accept" && params.mode !== "url" && { content: answers[params.message] }) };
    });
  }
  client.setRequestHandler("sampling/createMessage", () => ({
    role: "assistant",
    model: "test",
    content: { type: "text", text: "hi" },
  }));
  client.setRequestHandler("roots/list", () => ({ roots: [{ uri: "file:///a" }, { uri: "file:///b" }] }));
  client.setNotificationHandler("notifications/message", ({ params }) => {
    seen.logs.push([params.level, params.data]);
  });
  client.setNotificationHandler("notifications/tools/list_changed", () => void (seen.toolsChanged = true));
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => void seen.updated.push(params.uri));
  await client.connect(transport);
  if (!modern) await until(() => seen.streamOpen, 5); // until the GET stream is open, what a server sends there is lost
  try {
    return await use(client, seen);
  } finally {
    if (!modern) await transport.terminateSession().catch(() => {});
    await client.close();
  }
}

const text = (result) => result.content.filter((part) => part.type === "text").map((part) => part.text).join(" ");

async function until(condition, seconds = 10) {
  for (let i = 0; i < seconds * 20 && !condition(); i++) await sleep(50);
  return condition();
}

const call = (name, args = {}, options = {}) =>
  connected(async (client) => text(await client.callTool({ name, arguments: args })), options);

// What comes of a call that the gateway asks this user about, and whether the question shows its arguments.
const approval = (approves) => {
  const said = `careful ${approves} ${extra}`;
  const ask = async (client, seen) => {
    const result = text(await client.callTool({ name: "echo", arguments: { text: said } }));
    return [result === said ? "called" : result.split(" ")[0], ...seen.asked.map((question) => question.includes(said))];
  };
  return connected(ask, { approves });
};

const diary = () => (existsSync(extra) ? readFileSync(extra, "utf8").split("\n").filter(Boolean) : []);

const complete = (ref, value) =>
  connected(async (client) => (await client.complete({ ref, argument: { name: "name", value } })).completion.values);

// What each check does and what it has to see.
const check = {
  echo: [() => call("echo", { text: "hello" }), "hello"],
  tools: [() => connected(async (c) => (await c.listTools()).tools.some((tool) => tool.name === "echo")), true],
  form: [() => call("ask_form"), "accept:ana:7"],
  decline: [() => call("ask_form", {}, { action: "decline" }), "decline"],
  approve: [() => approval(true), ["called", true]],
  disapprove: [() => approval(false), ["denied:", true]],
  url: [
    () => connected(async (c, seen) => [text(await c.callTool({ name: "ask_url", arguments: {} })), ...seen.urls]),
    ["url:accept", "https://example.com/consent"],
  ],
  twice: [() => call("ask_twice"), "1+2"],
  sample: [() => call("sample"), "sampled:hi"],
  roots: [() => call("roots"), "roots:file:///a,file:///b"],
  progress: [
    () =>
      connected(async (client) => {
        const steps = [];
        const onprogress = (step) => steps.push(step.progress);
        await client.callTool({ name: "progress", arguments: {} }, { onprogress });
        return steps;
      }),
    [1, 2, 3],
  ],
  log: [
    () =>
      connected(async (client, seen) => {
        if (!modern) await client.setLoggingLevel("info");
        const _meta = modern ? { [LOG_LEVEL_META_KEY]: "info" } : undefined;
        await client.callTool({ name: "log", arguments: {}, _meta });
        await until(() => seen.logs.length >= 2);
        await sleep(200); // for one too many
        return seen.logs;
      }),
    [["info", "i"], ["error", "e"]],
  ],
  cancel: [
    () =>
      connected(async (client) => {
        const stop = new AbortController();
        const job = client.callTool({ name: "slow", arguments: { marker: extra } }, stop);
        job.catch(() => {});
        await until(() => diary().includes("started"));
        stop.abort("enough");
        await until(() => diary().length > 1);
        return diary();
      }),
    ["started", "cancelled"],
  ],
  list_changed: [
    () =>
      connected(async (client, seen) => {
        await client.listTools();
        if (modern) await client.listen({ toolsListChanged: true });
        await client.callTool({ name: "grow", arguments: {} });
        const told = await until(() => seen.toolsChanged);
        const { tools } = await client.listTools();
        return { told, listed: tools.some((tool) => tool.name === "grown") };
      }),
    { told: true, listed: true },
  ],
  // With `discovery.loads`: the client is told that its list has what it has found, and calls it.
  loads: [
    () =>
      connected(async (client, seen) => {
        const has = async () => (await client.listTools()).tools.some((tool) => tool.name === "read_file");
        const before = await has();
        if (modern) await client.listen({ toolsListChanged: true });
        await client.callTool({ name: "find_tools", arguments: { query: "read a text file", limit: 1 } });
        const told = await until(() => seen.toolsChanged);
        const after = await has();
        return [before, told, after, text(await client.callTool({ name: "read_file", arguments: { path: "a" } }))];
      }),
    [false, true, true, '{"path":"a"}'],
  ],
  updated: [
    () =>
      connected(async (client, seen) => {
        if (modern) await client.listen({ resourceSubscriptions: [BOARD] });
        else await client.subscribeResource({ uri: BOARD });
        await client.callTool({ name: "touch", arguments: {} });
        await until(() => seen.updated.length > 0);
        return seen.updated;
      }),
    [BOARD],
  ],
  resources: [() => connected(async (c) => (await c.listResources()).resources.some((r) => r.uri === BOARD)), true],
  read: [() => connected(async (c) => (await c.readResource({ uri: BOARD })).contents[0].text), "board"],
  template: [
    () =>
      connected(async (client) => {
        const { resourceTemplates } = await client.listResourceTemplates();
        const note = await client.readResource({ uri: "note://x" });
        return [...resourceTemplates.map((template) => template.uriTemplate), note.contents[0].text];
      }),
    ["note://{name}", "note x"],
  ],
  prompts: [() => connected(async (c) => (await c.listPrompts()).prompts.some((p) => p.name === "greet")), true],
  prompt: [
    () =>
      connected(async (client) => {
        const { messages } = await client.getPrompt({ name: "greet", arguments: { name: "ana" } });
        return messages[0].content.text;
      }),
    "greet ana",
  ],
  complete: [() => complete({ type: "ref/prompt", name: "greet" }, "an"), ["ana", "anton"]],
  complete_template: [() => complete({ type: "ref/resource", uri: "note://{name}" }, "bo"), ["board"]],
  ping: [() => connected(async (client) => Boolean(await client.ping())), true],
  instructions: [() => connected(async (client) => client.getInstructions()), "be kind"],
  no_capability: [
    () =>
      connected(
        (client) =>
          client.callTool({ name: "ask_form", arguments: {} }).then(
            (result) => (result.isError ? "error result" : text(result)),
            (error) => error.code ?? String(error),
          ),
        { asks: false },
      ),
    (got) => typeof got === "number" || got === "error result",
  ],
};

const late = async () => {
  await sleep(30_000, undefined, { ref: false });
  throw new Error("no end after 30 s");
};

let code = 0;
for (const cap of checks.split(",")) {
  let ok = null;
  let got = cannot[cap];
  if (got === undefined) {
    const [run, want] = check[cap];
    try {
      got = await Promise.race([run(), late()]);
      ok = typeof want === "function" ? want(got) : isDeepStrictEqual(got, want);
    } catch (error) {
      [ok, got] = [false, String(error).slice(0, 300)];
    }
  }
  console.log(JSON.stringify({ cap, ok, got }));
  if (ok === false) code = 1;
  else if (ok === null) code ||= 3;
}
process.exit(code);
