"""Models of providers. A module of its own: `import greenroom` loads no HTTP client.

    from greenroom.models import OpenAIChat

    agent = gr.Agent("support", model=OpenAIChat("gpt-5-mini"))          # the same as model="openai:gpt-5-mini"
    local = gr.Agent("local", model=OpenAIChat("qwen3", base_url="http://127.0.0.1:8080/v1"))
"""

from greenroom.actors.models.anthropic import Anthropic as Anthropic
from greenroom.actors.models.gemini import Gemini as Gemini
from greenroom.actors.models.openai import OpenAIChat as OpenAIChat
from greenroom.actors.models.openai import OpenAIResponses as OpenAIResponses
from greenroom.supervision.public import publish as _publish

__all__ = ["Anthropic", "Gemini", "OpenAIChat", "OpenAIResponses"]

_publish(__name__, globals(), __all__)
