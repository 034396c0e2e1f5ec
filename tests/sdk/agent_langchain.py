"""A LangChain agent (`create_agent` with langchain-mcp-adapters) whose model follows a script. Legacy era.

Arguments: API key, URL, calls as JSON (`[[TOOL, ARGUMENTS], ...]`). Prints as JSON which tools the model was given, what each
call came to as the model read it, and the answer that the agent ended with.
"""

import asyncio
import json
import sys

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


def text(message):
    blocks = message.content if isinstance(message.content, list) else [{"type": "text", "text": message.content}]
    return " ".join(block["text"] for block in blocks if block["type"] == "text")


class Scripted(BaseChatModel):
    """Makes the next call of the script at each turn; when all are made, it answers with what it has read."""

    calls: list
    given: list = []

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        self.given[:] = [tool.name for tool in tools]
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        read = [message for message in messages if isinstance(message, ToolMessage)]
        if len(read) < len(self.calls):
            tool, arguments = self.calls[len(read)]
            call = {"name": tool, "args": arguments, "id": f"call-{len(read)}", "type": "tool_call"}
            message = AIMessage(content="", tool_calls=[call])
        else:
            message = AIMessage(content="I have read: " + " | ".join(text(one) for one in read))
        return ChatResult(generations=[ChatGeneration(message=message)])


async def main():
    key, url, calls = sys.argv[1:]
    headers = {"Authorization": f"Bearer {key}"}
    client = MultiServerMCPClient({"gateway": {"transport": "streamable_http", "url": url, "headers": headers}})
    async with client.session("gateway") as session:
        model = Scripted(calls=json.loads(calls))
        agent = create_agent(model, await load_mcp_tools(session))
        done = await agent.ainvoke({"messages": [{"role": "user", "content": "Do it."}]})
    read = [message for message in done["messages"] if isinstance(message, ToolMessage)]
    print(json.dumps({
        "tools": model.given,
        "read": [text(one) for one in read],
        "answer": text(done["messages"][-1]),
    }))


asyncio.run(main())
