// A client of the TypeScript SDK 2.x (modern) that gets its own token. Argument: the endpoint. Prints a report.
import { randomUUID } from "node:crypto";
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from "@modelcontextprotocol/client";

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
    client_name: "ts2",
    redirect_uris: [REDIRECT],
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
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (discovery) => void (kept.discovery = discovery),
  redirectToAuthorization: async (to) => void (kept.answer = await browse(to)),
};

function start() {
  const transport = new StreamableHTTPClientTransport(url, { authProvider });
  const client = new Client({ name: "ts2", version: "1" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  return { transport, client, connected: client.connect(transport) };
}

const first = start();
await first.connected.then(
  () => Promise.reject(new Error("no authorization was asked for")),
  (error) => error instanceof UnauthorizedError || Promise.reject(error),
);
if (kept.answer.get("state") !== kept.state) throw new Error(`not our answer: ${kept.answer}`);
await first.transport.finishAuth(kept.answer);

const { client, connected } = start();
await connected;
const tools = await client.listTools();
const result = await client.callTool({ name: "echo", arguments: { text: "hello" } });
await client.close();
if (result.isError) throw new Error(`echo failed: ${JSON.stringify(result.content)}`);
const report = {
  tools: tools.tools.map((tool) => tool.name),
  said: result.content.filter((c) => c.type === "text").map((c) => c.text).join(" "),
  registered: kept.client !== undefined && kept.tokens !== undefined,
};
console.log(JSON.stringify(report));
