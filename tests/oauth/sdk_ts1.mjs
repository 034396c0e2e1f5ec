// A client of the TypeScript SDK 1.x (legacy) that gets its own token. Argument: the endpoint. Prints a report.
import { randomUUID } from "node:crypto";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const REDIRECT = "http://127.0.0.1:1/callback"; // nothing listens there
const url = new URL(process.argv[2]);
const kept = {};

// Follows the redirects of the authorization server up to the one to the client, with the cookies of each origin.
async function browse(to) {
  const jars = {};
  while (to.origin + to.pathname !== REDIRECT) {
    const jar = (jars[to.origin] ??= new Map());
    const cookie = [...jar].map((pair) => pair.join("=")).join("; ");
    const response = await fetch(to, { redirect: "manual", headers: cookie ? { cookie } : {} });
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = line.match(/^([^=]*)=([^;]*)/);
      if (value) jar.set(name, value);
      else jar.delete(name);
    }
    const location = response.headers.get("location");
    if (!location) throw new Error(`${to} answered ${response.status}: ${await response.text()}`);
    to = new URL(location, to);
  }
  return to.searchParams;
}

const authProvider = {
  redirectUrl: REDIRECT,
  clientMetadata: {
    client_name: "ts1",
    redirect_uris: [REDIRECT],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  },
  state: () => (kept.state = randomUUID()),
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  redirectToAuthorization: async (to) => void (kept.answer = await browse(to)),
};

function start() {
  const transport = new StreamableHTTPClientTransport(url, { authProvider });
  const client = new Client({ name: "ts1", version: "1" });
  return { transport, client, connected: client.connect(transport) };
}

const first = start();
await first.connected.then(
  () => Promise.reject(new Error("no authorization was asked for")),
  (error) => error instanceof UnauthorizedError || Promise.reject(error),
);
const code = kept.answer.get("code");
if (!code || kept.answer.get("state") !== kept.state) throw new Error(`no code: ${kept.answer}`);
await first.transport.finishAuth(code);

const { transport, client, connected } = start();
await connected;
const tools = await client.listTools();
const result = await client.callTool({ name: "echo", arguments: { text: "hello" } });
await transport.terminateSession();
await client.close();
if (result.isError) throw new Error(`echo failed: ${JSON.stringify(result.content)}`);
const report = {
  tools: tools.tools.map((tool) => tool.name),
  said: result.content.filter((c) => c.type === "text").map((c) => c.text).join(" "),
  registered: kept.client !== undefined && kept.tokens !== undefined,
};
console.log(JSON.stringify(report));
