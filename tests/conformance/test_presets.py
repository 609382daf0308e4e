"""Presets: services with the format of chat completions, each at its address, with its key and its own fields."""

import re
from importlib import metadata

import pytest

import greenroom as gr
from greenroom.actors.models import PROVIDERS, resolve_model
from greenroom.actors.models.presets import PRESETS, ROADS
from greenroom.models import OpenAIChat, OpenAIResponses
from greenroom.testing import ScriptedModel, call, open_fault_server, reply, think

from ..support.providers import KEY, MODELS, model_of

REMOTE = [name for name, preset in PRESETS.items() if not preset.local and preset.base_url]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
each_preset = pytest.mark.parametrize("preset", PRESETS)


@gr.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture(autouse=True)
def _environment_without_services(monkeypatch):
    for preset in PRESETS.values():
        for variable in (*preset.keys, preset.address, *(source for _, source in preset.headers)):
            monkeypatch.delenv(variable or "GREENROOM_NOTHING", raising=False)
    monkeypatch.delenv("OPENAI_API_VERSION", raising=False)


def body(preset: str, name: str = "small", **request):
    """The body of a request to a service."""
    options = {"base_url": "https://me.openai.azure.com"} if preset == "azure" else {}
    model = OpenAIChat(name, preset=preset, **options)
    asking = {"agent": "a", "messages": (gr.Message(id="1", role="user", content="Hi"),), **request}
    return model._codec.encode(gr.ModelRequest(**asking)).body


ADDRESSES = {
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "ollama": ("http://127.0.0.1:11434/v1", "OLLAMA_API_KEY"),
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": ("https://api.together.ai/v1", "TOGETHER_API_KEY"),
    "vllm": ("http://127.0.0.1:8000/v1", "VLLM_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
}


@pytest.mark.rule("M-17")
@pytest.mark.parametrize("preset", ADDRESSES)
def test_a_preset_has_the_address_and_the_key_of_its_service(preset, monkeypatch):
    address, variable = ADDRESSES[preset]
    monkeypatch.setenv(variable, KEY)
    model = resolve_model(f"{preset}:small")
    assert isinstance(model, OpenAIChat)
    assert (model.name, model.base_url) == (f"{preset}:small", address)
    assert model._headers.value == {"authorization": f"Bearer {KEY}"}
    assert model.check({}) is None


def test_every_preset_is_in_a_table_of_this_file():
    assert {*ADDRESSES, "azure"} == PRESETS.keys()


@pytest.mark.rule("M-2", "M-17")
@pytest.mark.parametrize("preset", REMOTE)
def test_a_service_needs_its_own_key(preset, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", KEY)
    fault = resolve_model(f"{preset}:small").check({})
    assert fault == (
        f"there is no API key for {PRESETS[preset].base_url.split('/')[2]}: set {PRESETS[preset].keys[0]},"
        " or give api_key="
    )


@pytest.mark.rule("M-17")
@pytest.mark.parametrize("preset", ["ollama", "vllm"])
def test_a_server_of_this_machine_needs_no_key_and_may_be_elsewhere(preset, monkeypatch):
    assert resolve_model(f"{preset}:small").check({}) is None
    monkeypatch.setenv(PRESETS[preset].address, "http://gpu.local:1234/v1/")
    model = resolve_model(f"{preset}:small")
    assert (model.base_url, model.check({})) == ("http://gpu.local:1234/v1", None)


@pytest.mark.rule("M-17")
@each_preset
async def test_a_run_calls_its_tool_at_each_service(preset):
    """The service is a server of the test, asked in the form of the preset."""
    calling = reply(think("Hm."), call("add", a=40, b=2, id="call_1"))
    async with open_fault_server(calling, reply("It is 42.")) as server:
        address = server.base_url("chat")
        if preset == "azure":
            address = f"{address.removesuffix('/v1')}/openai/v1"
        model = OpenAIChat("small", preset=preset, base_url=server.base_url("chat"), api_key=KEY)
        if preset == "azure":  # its path has more folders than the server of the test knows
            assert model.base_url == address
            model.base_url = server.base_url("chat")
        agent = gr.Agent("helper", tools=[add], model=model)
        assert (await gr.run(agent, "What is 40 + 2?")).output == "It is 42."
        second = server.requests[1].body["messages"]
    (called,) = second[-2]["tool_calls"]
    assert called["id"] == second[-1]["tool_call_id"]
    assert re.fullmatch(r"[a-zA-Z0-9]{9}" if preset == "mistral" else "call_1", called["id"])
    assert ("reasoning_content" in second[-2]) is (preset != "mistral")


# --- what a service has otherwise than OpenAI ------------------------------------------------------------------------

LIMITS = {
    "max_completion_tokens": {"openai", "azure", "groq", "xai"},
    "max_tokens": {"deepseek", "mistral", "ollama", "openrouter", "together", "vllm"},
}


@pytest.mark.rule("M-17")
@each_preset
def test_settings_have_the_names_of_the_service(preset):
    sent = body(preset, settings={"max_tokens": 9, "seed": 7})
    assert [name for name in LIMITS if name in sent] == [name for name in LIMITS if preset in LIMITS[name]]
    assert sent["random_seed" if preset == "mistral" else "seed"] == 7
    assert sent.get("stream_options") == (None if preset == "mistral" else {"include_usage": True})


@pytest.mark.rule("M-17")
@each_preset
def test_a_demanded_call_has_the_word_of_the_service(preset):
    tools = (gr.ToolInfo(name="add", description="", schema={"type": "object", "properties": {}}),)
    assert body(preset, tools=tools, tool_choice="required")["tool_choice"] == (
        "any" if preset == "mistral" else "required"
    )
    assert body(preset, tools=tools, tool_choice="none")["tool_choice"] == "none"
    assert body(preset, tools=tools, tool_choice="add")["tool_choice"]["function"] == {"name": "add"}


THINKING = {
    "azure": ({"reasoning_effort": "medium"}, {"reasoning_effort": "none"}, {"reasoning_effort": "low"}),
    "deepseek": (
        {"thinking": {"type": "enabled"}},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "enabled"}, "reasoning_effort": "low"},
    ),
    "groq": ({"reasoning_effort": "medium"}, {"reasoning_effort": "none"}, {"reasoning_effort": "low"}),
    "mistral": ({"reasoning_effort": "high"}, {"reasoning_effort": "none"}, {"reasoning_effort": "low"}),
    "ollama": ({"reasoning_effort": "medium"}, {"reasoning_effort": "none"}, {"reasoning_effort": "low"}),
    "openrouter": (
        {"reasoning": {"enabled": True}},
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"effort": "low"}},
    ),
    "together": (
        {"reasoning": {"enabled": True}},
        {"reasoning": {"enabled": False}},
        {"reasoning_effort": "low"},
    ),
    "vllm": (
        {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}},
        {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
        {"reasoning_effort": "low"},
    ),
    "xai": ({"reasoning_effort": "medium"}, {"reasoning_effort": "none"}, {"reasoning_effort": "low"}),
}
FIELDS = ("reasoning_effort", "reasoning", "thinking", "chat_template_kwargs")


@pytest.mark.rule("M-17")
@pytest.mark.parametrize("preset", THINKING)
def test_thinking_is_asked_for_in_the_field_of_the_service(preset):
    for setting, fields in zip((True, False, "low"), THINKING[preset], strict=True):
        sent = body(preset, settings={"thinking": setting})
        assert {name: sent[name] for name in FIELDS if name in sent} == fields


def test_groq_has_another_word_for_the_thinking_of_qwen():
    """And without the format its reasoning would be in the text."""
    for thinking, word in ((True, "default"), (False, "none")):
        sent = body("groq", "qwen/qwen3-32b", settings={"thinking": thinking})
        assert (sent["reasoning_effort"], sent["reasoning_format"]) == (word, "parsed")


NATIVE = {"openai", "azure", "openrouter", "xai"}
WORDS = {"deepseek", "groq"}


@pytest.mark.rule("M-17")
@each_preset
def test_a_form_is_asked_for_as_far_as_the_service_takes_it(preset):
    tools = (gr.ToolInfo(name="add", description="", schema={"type": "object", "properties": {}}),)
    alone, beside = body(preset, output_schema=SCHEMA), body(preset, output_schema=SCHEMA, tools=tools)
    assert ("response_format" in alone) is (preset not in WORDS)
    assert ("response_format" in beside) is (preset in NATIVE)
    for sent in (alone, beside):
        assert ("response_format" in sent) is not ("JSON Schema" in sent["messages"][0]["content"])


@pytest.mark.rule("M-4", "M-17")
@pytest.mark.parametrize(
    ("preset", "setting"), [("mistral", "service_tier"), ("ollama", "parallel_tool_calls"), ("vllm", "service_tier")]
)
def test_a_setting_that_the_service_lacks_is_refused(preset, setting):
    model = OpenAIChat("small", preset=preset, api_key=KEY)
    assert f"there is no setting {setting!r}; " in model.check({setting: "flex"})


def test_openrouter_learns_the_application_from_the_environment(monkeypatch):
    assert "X-Title" not in OpenAIChat("small", preset="openrouter", api_key=KEY)._headers.value
    monkeypatch.setenv("OPENROUTER_APP_URL", "https://example.org")
    monkeypatch.setenv("OPENROUTER_APP_TITLE", "Example")
    sent = OpenAIChat("small", preset="openrouter", api_key=KEY, headers={"X-Title": "Mine"})._headers.value
    assert (sent["HTTP-Referer"], sent["X-Title"]) == ("https://example.org", "Mine")
    elsewhere = OpenAIChat("small", preset="openrouter", base_url="http://127.0.0.1:9/v1")._headers.value
    assert "HTTP-Referer" not in elsewhere


# --- Azure -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-17")
@pytest.mark.parametrize(
    "endpoint",
    ["https://me.openai.azure.com", "https://me.openai.azure.com/", "https://me.openai.azure.com/openai/v1/"],
)
def test_azure_has_the_address_of_the_resource(endpoint, monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", endpoint)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    model = resolve_model("azure:my deployment")
    sent = model._codec.encode(gr.ModelRequest(agent="a", messages=()))
    assert (model.base_url, sent.path) == ("https://me.openai.azure.com/openai/v1", "/chat/completions")
    assert sent.body["model"] == "my deployment"
    assert model._headers.value == {"api-key": KEY}
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    dated = resolve_model("azure:my deployment")
    assert dated.base_url == "https://me.openai.azure.com/openai/deployments/my%20deployment"
    path = dated._codec.encode(gr.ModelRequest(agent="a", messages=())).path
    assert path == "/chat/completions?api-version=2024-10-21"


def test_azure_needs_an_address_and_a_key(monkeypatch):
    with pytest.raises(gr.AgentDefinitionError, match=r"no address: set AZURE_OPENAI_ENDPOINT, .* or give base_url="):
        resolve_model("azure:gpt")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://me.openai.azure.com")
    assert "no API key for me.openai.azure.com: set AZURE_OPENAI_API_KEY" in resolve_model("azure:gpt").check({})
    with pytest.raises(gr.AgentDefinitionError, match="only the preset azure takes one"):
        OpenAIChat("small", preset="groq", api_version="2024-10-21")


# --- names that have no preset ---------------------------------------------------------------------------------------


@pytest.mark.rule("M-17")
@pytest.mark.parametrize("prefix", ROADS)
def test_a_service_with_another_kind_of_key_names_the_road(prefix):
    with pytest.raises(gr.AgentDefinitionError, match=r"OpenAI-compatible address.*base_url=.*gateway.*LiteLLM"):
        resolve_model(f"{prefix}:small")
    with pytest.raises(gr.AgentDefinitionError, match=r"a base URL is for .*OpenAI-compatible address"):
        resolve_model(f"{prefix}:small", base_url="https://example.org/v1")
    assert resolve_model(f"{prefix}:small", {prefix: lambda name: ScriptedModel([name])}).name == "scripted"


@pytest.mark.rule("M-16", "M-17")
def test_an_unknown_prefix_lists_those_that_exist():
    with pytest.raises(gr.AgentDefinitionError, match="did you mean 'openrouter'") as raised:
        resolve_model("openroute:small")
    assert all(prefix in str(raised.value) for prefix in PROVIDERS)
    for word, prefix in (("grok", "xai"), ("google", "gemini"), ("claude", "anthropic"), ("lmstudio", "openai")):
        with pytest.raises(gr.AgentDefinitionError, match=f"did you mean '{prefix}'"):
            resolve_model(f"{word}:small")
    with pytest.raises(gr.AgentDefinitionError, match=r"did you mean 'xai'.* use one of openai, azure, deepseek"):
        OpenAIChat("small", preset="grok")


@pytest.mark.parametrize("model", [OpenAIChat, OpenAIResponses])
def test_the_strict_form_is_on_off_or_as_the_service_takes_it(model):
    with pytest.raises(gr.AgentDefinitionError, match="strict='yes': give True, False or None"):
        model("small", api_key=KEY, strict="yes")


@pytest.mark.rule("M-18")
@pytest.mark.parametrize("name", MODELS)
async def test_each_provider_learns_which_version_asks(name):
    async with open_fault_server(reply("Hello."), reply("Hello.")) as server:
        await gr.run(gr.Agent("helper", model=model_of(name, server)), "Hi")
        named = model_of(name, server, headers={"User-Agent": "mine/1"})
        await gr.run(gr.Agent("helper", model=named), "Hi")
        first, second = (asked.headers["user-agent"] for asked in server.requests)
    version = re.escape(metadata.version("greenroom"))
    assert re.fullmatch(rf"greenroom/{version} python/3\.\d+ httpx/[\d.]+", first)
    assert second == "mine/1"
