// A client of the TypeScript SDK 2.x (both eras). Arguments: API key, era, jobs as JSON. Prints a report per job.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [key, era, jobs] = process.argv.slice(2);

async function work(job) {
  const transport = new StreamableHTTPClientTransport(new URL(job.url), {
    requestInit: { headers: key ? { Authorization: `Bearer ${key}` } : {} },
  });
  const mode = era === "legacy" ? "legacy" : { pin: "2026-07-28" };
  const client = new Client({ name: "ts2", version: "1" }, { versionNegotiation: { mode } });
  await client.connect(transport);
  const tools = await client.listTools();
  const progress = [];
  const result = await client.callTool(
    { name: job.tool, arguments: job.arguments },
    { onprogress: (step) => progress.push(step.progress) },
  );
  const calls = [];
  for (const [name, given] of job.calls ?? []) {
    const { content, isError } = await client.callTool({ name, arguments: given });
    calls.push([content.filter((c) => c.type === "text").map((c) => c.text).join(" "), isError === true]);
  }
  const hidden = await client.callTool({ name: job.hidden, arguments: {} }).then(
    () => "called",
    (error) => [error.code, error.message],
  );
  const report = {
    version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion,
    server: client.getServerVersion()?.name,
    tools: tools.tools.map((tool) => tool.name),
    text: result.content.filter((c) => c.type === "text").map((c) => c.text).join(" "),
    failed: result.isError === true,
    progress,
    hidden,
    calls,
    seen: [tools, result],
  };
  await client.close();
  return report;
}

const reports = [];
for (const job of JSON.parse(jobs)) reports.push(await work(job));
console.log(JSON.stringify(reports));
