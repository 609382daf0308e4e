"""Images and files in the form of each provider, and media types that a provider does not take."""

from base64 import b64encode

import pytest
from tests.support.providers import CODECS

import greenroom as gr
from greenroom.actors.models.codecs.gemini import GeminiCodec

IMAGE = gr.Image(b"\x89PNG\r\n\x1a\n").part
AT = gr.Image(url="https://example.org/a.png").part
PDF = gr.File(b"%PDF-", media_type="application/pdf", name="a.pdf").part
CSV = gr.File(b"a,b", media_type="text/csv", name="t.csv").part
SOUND = gr.File(b"RIFF", media_type="audio/wav").part
FILM = gr.File(b"film", media_type="video/mp4").part
WORD = gr.File(
    b"PK", media_type="application/vnd.openxmlformats-officedocument.wordprocessingml.document", name="w.docx"
).part
ZIP = gr.File(b"PK", media_type="application/zip").part
TIFF = gr.Image(b"II*", media_type="image/tiff").part
KINDS = {"image": IMAGE, "at": AT, "pdf": PDF, "csv": CSV, "sound": SOUND, "film": FILM, "word": WORD, "zip": ZIP}
KINDS["tiff"] = TIFF
FORMS = {
    "chat": {"image", "at", "pdf", "csv", "sound"},
    "responses": {"image", "at", "pdf", "csv", "word"},
    "anthropic": {"image", "at", "pdf", "csv"},
    "gemini": {"image", "at", "pdf", "csv", "sound", "film"},
}
CALLS = (
    gr.CallRequest(call_id="c1", tool="look", arguments={}),
    gr.CallRequest(call_id="c2", tool="look", arguments={}),
)


def coded(part: gr.Part) -> str:
    return b64encode(part.data or b"").decode()


def message(role: str, content: str = "", **more) -> gr.Message:
    return gr.Message(id=f"{role}.{content}", role=role, content=content, **more)


def body(name: str, *messages: gr.Message, codec=None):
    return (codec or CODECS[name]()).encode(gr.ModelRequest(agent="a", messages=messages)).body


def asked(*parts: gr.Part, text: str = "What is it?") -> gr.Message:
    return message("user", text, parts=parts)


def looked(*parts: gr.Part) -> tuple[gr.Message, ...]:
    return (
        message("user", "Look."),
        message("assistant", calls=CALLS),
        message("tool", "seen", call_id="c1", parts=parts),
        message("tool", "nothing", call_id="c2"),
        message("user", "Well?"),
    )


@pytest.mark.rule("AT-17")
def test_openai_chat_gets_parts_of_content():
    (made,) = body("chat", asked(IMAGE, AT, PDF, CSV, SOUND))["messages"]
    assert made == {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{coded(IMAGE)}"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{coded(PDF)}"},
            },
            {"type": "text", "text": "[t.csv]\na,b"},
            {"type": "input_audio", "input_audio": {"data": coded(SOUND), "format": "wav"}},
        ],
    }


@pytest.mark.rule("AT-18")
def test_openai_chat_gets_the_images_of_results_after_all_results():
    messages = body("chat", *looked(IMAGE))["messages"]
    assert [made["role"] for made in messages] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert (messages[2]["content"], messages[5]["content"]) == ("seen", "Well?")
    text, image = messages[4]["content"]
    assert (text["text"], image["type"]) == ("The images and files of the result of call c1:", "image_url")
    last = body("chat", *looked(IMAGE)[:-1])["messages"]
    assert last[-1] == messages[4]


@pytest.mark.rule("AT-17")
def test_openai_responses_get_parts_of_input_and_of_outputs():
    made = body("responses", asked(IMAGE, CSV), *looked(WORD)[1:])["input"]
    assert made[0]["content"] == [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{coded(IMAGE)}", "detail": "auto"},
        {"type": "input_file", "filename": "t.csv", "file_data": f"data:text/csv;base64,{coded(CSV)}"},
    ]
    outputs = [item["output"] for item in made if item.get("type") == "function_call_output"]
    assert outputs == [
        [
            {"type": "input_text", "text": "seen"},
            {"type": "input_file", "filename": "w.docx", "file_data": f"data:{WORD.media_type};base64,UEs="},
        ],
        "nothing",
    ]


@pytest.mark.rule("AT-17")
def test_anthropic_gets_blocks_also_in_a_tools_result():
    made = body("anthropic", asked(IMAGE, AT, PDF, CSV), *looked(IMAGE)[1:])["messages"]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": coded(IMAGE)}}
    assert made[0]["content"] == [
        {"type": "text", "text": "What is it?"},
        image,
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": coded(PDF)},
            "title": "a.pdf",
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "a,b"},
            "title": "t.csv",
        },
    ]
    results = made[2]["content"]
    assert [block["type"] for block in results] == ["tool_result", "tool_result", "text"]
    assert results[0]["content"] == [{"type": "text", "text": "seen"}, image]


@pytest.mark.rule("AT-17")
@pytest.mark.rule("AT-19")
def test_gemini_gets_data_in_the_response_of_a_function():
    made = body("gemini", asked(IMAGE, AT, CSV), *looked(IMAGE, FILM)[1:], codec=GeminiCodec("gemini-3"))["contents"]
    image = {"inlineData": {"mimeType": "image/png", "data": coded(IMAGE)}}
    assert made[0]["parts"] == [
        {"text": "What is it?"},
        image,
        {"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/a.png"}},
        {"inlineData": {"mimeType": "text/plain", "data": coded(CSV)}},
    ]
    first, second, text, film, well = made[2]["parts"]
    assert first["functionResponse"]["parts"] == [image]
    assert (second["functionResponse"]["response"], well) == ({"output": "nothing"}, {"text": "Well?"})
    assert (text["text"][:10], film["inlineData"]["mimeType"]) == ("The images", "video/mp4")


@pytest.mark.rule("AT-19")
def test_an_older_gemini_gets_data_behind_the_responses():
    made = body("gemini", *looked(IMAGE), codec=GeminiCodec("gemini-2.5-pro"))["contents"]
    first, second, text, image, well = made[2]["parts"]
    assert "parts" not in first["functionResponse"]
    assert "functionResponse" in second
    assert image == {"inlineData": {"mimeType": "image/png", "data": coded(IMAGE)}}
    assert (text["text"], well["text"]) == ("The images and files of the result of call c1:", "Well?")


@pytest.mark.rule("AT-17")
@pytest.mark.parametrize("place", ["input", "result"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMS)
def test_a_part_that_a_provider_does_not_take_is_refused_before_the_request(name, kind, place):
    messages = (asked(KINDS[kind]),) if place == "input" else looked(KINDS[kind])
    if kind in FORMS[name]:
        assert body(name, *messages)
        return
    with pytest.raises(gr.ModelError, match=r"does not take this (image|file): .*; give one of image/png") as raised:
        body(name, *messages)
    assert (raised.value.kind, raised.value.retryable) == ("invalid_request", False)


@pytest.mark.parametrize("name", FORMS)
def test_a_blank_text_beside_parts_is_left_out(name):
    made = body(name, asked(IMAGE, text=""))
    assert "text" not in str(made).replace("text/", "").replace("'text': {'format'", "").replace("input_text", "text")


@pytest.mark.parametrize("name", FORMS)
def test_bytes_that_are_lost_are_a_fault_of_the_request(name):
    lost = gr.Part(type="image", media_type="image/png", size=8, sha256="0" * 64)
    with pytest.raises(gr.ModelError, match="the bytes of this image are not there any more") as raised:
        body(name, asked(lost))
    assert raised.value.kind == "invalid_request"


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
def test_an_address_without_a_type_is_passed_on(name):
    assert "https://example.org/chart" in str(body(name, asked(gr.Image(url="https://example.org/chart").part)))


def test_gemini_wants_the_type_of_an_address():
    with pytest.raises(gr.ModelError, match=r"media_type="):
        body("gemini", asked(gr.Image(url="https://example.org/chart").part))


@pytest.mark.rule("AT-17")
@pytest.mark.parametrize("media_type", ["audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"])
def test_a_sound_has_one_name_on_the_wire(media_type):
    """Systems have four names for WAV."""
    sound = gr.File(b"RIFF", media_type=media_type).part
    (made,) = body("chat", asked(sound))["messages"]
    assert made["content"][-1]["input_audio"] == {"data": coded(sound), "format": "wav"}
    (made,) = body("gemini", asked(sound))["contents"]
    assert made["parts"][-1] == {"inlineData": {"mimeType": "audio/wav", "data": coded(sound)}}


@pytest.mark.rule("AT-17")
@pytest.mark.parametrize("name", ["responses", "anthropic"])
def test_a_provider_without_sounds_names_those_that_take_them(name):
    with pytest.raises(gr.ModelError, match=r"does not take this file: .*audio/wav.*; models of openai: take WAV"):
        body(name, asked(SOUND))
    with pytest.raises(gr.ModelError, match=r"OpenAI chat does not take this file: .*models of gemini: other sounds"):
        body("chat", asked(gr.File(b"OggS", media_type="audio/ogg").part))
