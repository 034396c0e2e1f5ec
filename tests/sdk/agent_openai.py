"""An agent of the OpenAI Agents SDK whose model follows a script. With the Python SDK 1.x it speaks the legacy era, with 2.x
the modern one where there is one.

Arguments: API key, URL, calls as JSON (`[[TOOL, ARGUMENTS], ...]`). Prints as JSON which tools the model was given, what each
call came to as the model read it, and the answer that the agent ended with.
"""

import asyncio
import json
import sys

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call


def outputs(items):
    return [item["output"] for item in items if isinstance(item, dict) and item.get("type") == "function_call_output"]


def text(output):
    return output if isinstance(output, str) else " ".join(part.get("text", "") for part in output)


def answer(call):
    """The last step: the answer says what was read."""
    return [assistant_message("I have read: " + " | ".join(text(output) for output in outputs(call.input)))]


async def main():
    key, url, calls = sys.argv[1:]
    set_tracing_disabled(True)
    steps = [[function_call(tool, arguments, call_id=f"call-{n}")] for n, (tool, arguments) in enumerate(json.loads(calls))]
    params = {"url": url, "headers": {"Authorization": f"Bearer {key}"}}
    async with MCPServerStreamableHttp(params, client_session_timeout_seconds=20) as server:
        model = ScriptedModel([*steps, ModelStep.respond(answer)])
        agent = Agent(name="scripted", model=model, mcp_servers=[server])
        done = await Runner.run(agent, "Do it.")
    model.assert_complete()
    print(json.dumps({
        "tools": [tool.name for tool in model.first_call.tools],
        "read": [text(output) for output in outputs(model.last_call.input)],
        "answer": done.final_output,
    }))


asyncio.run(main())
