// A client of the TypeScript SDK 1.x (legacy). Arguments: API key, era, jobs as JSON. Prints a report per job.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [key, , jobs] = process.argv.slice(2);

async function work(job) {
  const transport = new StreamableHTTPClientTransport(new URL(job.url), {
    requestInit: { headers: key ? { Authorization: `Bearer ${key}` } : {} },
  });
  const client = new Client({ name: "ts1", version: "1" });
  await client.connect(transport);
  const tools = await client.listTools();
  const progress = [];
  const result = await client.callTool({ name: job.tool, arguments: job.arguments }, undefined, {
    onprogress: (step) => progress.push(step.progress),
  });
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
    version: transport.protocolVersion,
    server: client.getServerVersion()?.name,
    tools: tools.tools.map((tool) => tool.name),
    text: result.content.filter((c) => c.type === "text").map((c) => c.text).join(" "),
    failed: result.isError === true,
    progress,
    hidden,
    calls,
    seen: [tools, result],
  };
  await transport.terminateSession();
  await client.close();
  return report;
}

const reports = [];
for (const job of JSON.parse(jobs)) reports.push(await work(job));
console.log(JSON.stringify(reports));
