"""Images and files in the form of each provider, or the refusal of a media type that a provider does not take.

Sources: the types of the official Python SDKs (openai 3.54, anthropic 2.12, google-genai 3.4), and the providers' pages
about files: chat completions take PDF as the only file, responses take documents, too; a function's response in Gemini
takes media from generation 3 on.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Final

from ...contract.messages import Message
from ...contract.parts import UNKNOWN_TYPE, Part
from ...contract.plain import JSONObject
from ...errors import ModelError

IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
GEMINI_IMAGES: Final = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
PDF: Final = "application/pdf"
WAV: Final = ("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave")
"""The names of one type: the first is the one that all providers know."""
AUDIO: Final = {**dict.fromkeys(WAV, "wav"), "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_OFFICE: Final = "application/vnd.openxmlformats-officedocument."
DOCUMENTS: Final = {
    PDF: "pdf",
    f"{_OFFICE}wordprocessingml.document": "docx",
    f"{_OFFICE}presentationml.presentation": "pptx",
    f"{_OFFICE}spreadsheetml.sheet": "xlsx",
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
    "application/vnd.ms-powerpoint": "ppt",
    "application/rtf": "rtf",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "application/json": "json",
}
"""Documents that responses take beside other texts, and the endings of their names."""
_TEXTS: Final = frozenset(
    {
        "application/json",
        "application/xml",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/javascript",
        "application/sql",
    }
)

Write = Callable[[Part], JSONObject]


def is_text(media_type: str) -> bool:
    """Return True for media types whose bytes are text."""
    return media_type.startswith("text/") or media_type in _TEXTS or media_type.endswith(("+json", "+xml"))


def refused(part: Part, provider: str, takes: Iterable[str]) -> ModelError:
    """Return the error about a part that a provider does not take. Raised before anything is sent."""
    text = f"{provider} does not take this {part.type}: {part.line()}; give one of {', '.join(takes)}"
    if part.media_type.startswith("audio/"):
        text += "; models of openai: take WAV and MP3, models of gemini: other sounds, too"
    return ModelError(text, kind="invalid_request")


def data_of(part: Part) -> bytes:
    """Return the bytes of a part.

    Raises:
        ModelError: they are not in the request.
    """
    if part.data is None:
        raise ModelError(f"the bytes of this {part.type} are not there any more: {part.line()}", kind="invalid_request")
    return part.data


def base64_of(part: Part) -> str:
    """Return the bytes of a part in base64. Raises as `data_of` does."""
    return b64encode(data_of(part)).decode()


def address(part: Part) -> str:
    """Return the address of an image, or its bytes as one. Raises as `data_of` does."""
    return part.url or f"data:{part.media_type};base64,{base64_of(part)}"


def text_of(part: Part) -> str:
    """Return a text file as text, with its name. Raises as `data_of` does."""
    return f"[{part.name or part.media_type}]\n{data_of(part).decode('utf-8', 'replace')}"


def name_of(part: Part) -> str:
    """Return the name of a file; providers tell its kind by the ending."""
    return part.name or f"file.{DOCUMENTS.get(part.media_type, 'txt')}"


def images_of(part: Part, provider: str, media_types: tuple[str, ...], others: Iterable[str] = ()) -> bool:
    """Return True for an image, False for a file.

    Raises:
        ModelError: the provider does not take images of this type.
    """
    if part.type == "file" and part.media_type not in media_types:
        return False
    if part.media_type not in media_types and not (part.url and part.media_type == UNKNOWN_TYPE):
        raise refused(part, provider, (*media_types, *others))
    return True


def announced(message: Message) -> str:
    """Return the words before parts of a result that cannot stand in the result itself."""
    return f"The images and files of the result of call {message.call_id}:"


# --- one function for each format -------------------------------------------------------------------------------------


def chat(part: Part) -> JSONObject:
    """Return a part of a user's message in chat completions.

    Raises:
        ModelError: the format does not take the media type, or the bytes are missing.
    """
    if images_of(part, "OpenAI chat", IMAGES):
        return {"type": "image_url", "image_url": {"url": address(part)}}
    if part.media_type == PDF:
        return {"type": "file", "file": {"filename": name_of(part), "file_data": address(part)}}
    if part.media_type in AUDIO:
        return {"type": "input_audio", "input_audio": {"data": base64_of(part), "format": AUDIO[part.media_type]}}
    if is_text(part.media_type):
        return {"type": "text", "text": text_of(part)}
    raise refused(part, "OpenAI chat", (*IMAGES, PDF, "text/*", *AUDIO))


def responses(part: Part) -> JSONObject:
    """Return a part of an input or an output of a function in responses. Raises as `chat` does."""
    if images_of(part, "OpenAI responses", IMAGES):
        return {"type": "input_image", "image_url": address(part), "detail": "auto"}
    if part.media_type in DOCUMENTS or is_text(part.media_type):
        return {"type": "input_file", "filename": name_of(part), "file_data": address(part)}
    raise refused(part, "OpenAI responses", (*IMAGES, "text/*", *DOCUMENTS))


def anthropic(part: Part) -> JSONObject:
    """Return a block of a user's message or a tool's result in messages. Raises as `chat` does."""
    if images_of(part, "Anthropic", IMAGES):
        if part.url:
            return {"type": "image", "source": {"type": "url", "url": part.url}}
        source = {"type": "base64", "media_type": part.media_type, "data": base64_of(part)}
        return {"type": "image", "source": source}
    if part.media_type == PDF:
        source = {"type": "base64", "media_type": PDF, "data": base64_of(part)}
    elif is_text(part.media_type):
        text = data_of(part).decode("utf-8", "replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        raise refused(part, "Anthropic", (*IMAGES, PDF, "text/*"))
    return {"type": "document", "source": source, **({"title": part.name} if part.name else {})}


def gemini(part: Part) -> JSONObject:
    """Return a part of a content in generateContent. Raises as `chat` does."""
    others = (PDF, "text/*", "audio/*", "video/*")
    if part.url:
        if part.media_type not in GEMINI_IMAGES:
            raise refused(part, "Gemini", (f"{name} (media_type=)" for name in GEMINI_IMAGES))
        return {"fileData": {"mimeType": part.media_type, "fileUri": part.url}}
    if not images_of(part, "Gemini", GEMINI_IMAGES, others):
        if is_text(part.media_type):
            return {"inlineData": {"mimeType": "text/plain", "data": base64_of(part)}}
        if part.media_type != PDF and not part.media_type.startswith(("audio/", "video/")):
            raise refused(part, "Gemini", (*GEMINI_IMAGES, *others))
    media_type = WAV[0] if part.media_type in WAV else part.media_type
    return {"inlineData": {"mimeType": media_type, "data": base64_of(part)}}


def in_response(part: JSONObject) -> bool:
    """Return True for a part of `gemini` that may stand in a function's response, of models that take media there."""
    media_type = part.get("inlineData", {}).get("mimeType", "")
    return media_type in ("image/png", "image/jpeg", "image/webp", PDF, "text/plain")
