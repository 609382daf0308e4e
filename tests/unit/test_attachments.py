"""Images and files as programs make them: what is taken, what is refused, and where the limits are."""

import base64
import itertools

import pytest

import greenroom as gr
from greenroom.actors.agents.attachments import attachment_of, parts_of
from greenroom.actors.contract.codec import normalise_result
from greenroom.actors.contract.parts import MAX_BYTES, MAX_PARTS, InvalidPart, detected

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
HEADS = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0more",
    "image/gif": b"GIF89a more",
    "image/webp": b"RIFF\x10\x00\x00\x00WEBPVP8 ",
    "application/pdf": b"%PDF-1.7 more",
}


class Hostile:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise SystemExit


def released() -> memoryview:
    view = memoryview(bytearray(PNG))
    view.release()
    return view


@pytest.mark.rule("AT-2")
@pytest.mark.parametrize("media_type", HEADS)
def test_the_first_bytes_show_the_media_type(media_type):
    assert detected(HEADS[media_type]) == media_type
    assert attachment_of(HEADS[media_type]).part.media_type == media_type


def test_other_bytes_show_nothing():
    assert [detected(data) for data in (b"", b"RIFF____WAVE", b"%PD", b"hello", b"GIF88a")] == [None] * 5


@pytest.mark.rule("AT-1")
def test_an_image_has_its_facts():
    part = gr.Image(PNG).part
    assert part.facts() == {"type": "image", "media_type": "image/png", "size": 28, "sha256": part.sha256}
    assert (len(part.sha256), part.data) == (64, PNG)
    assert repr(gr.Image(PNG)) == "Image(<image image/png, 28 bytes>)"
    assert gr.Image(bytearray(PNG)).part == gr.Image(memoryview(PNG)).part == part


@pytest.mark.rule("AT-1")
def test_an_address_names_the_type_and_is_not_read():
    part = gr.Image(url="https://example.org/a/chart.JPG?size=2#x").part
    assert part.facts() == {
        "type": "image",
        "media_type": "image/jpeg",
        "url": "https://example.org/a/chart.JPG?size=2#x",
    }
    assert gr.Image(url="http://example.org/chart").part.media_type == "application/octet-stream"
    assert gr.Image(url="http://example.org/chart", media_type="image/webp").part.media_type == "image/webp"


@pytest.mark.rule("AT-1")
@pytest.mark.parametrize(
    "url", [f"data:image/png;base64,{base64.b64encode(PNG).decode()}", "data:;base64,iVBORw0KGgo="]
)
def test_the_bytes_of_a_data_address_are_decoded(url):
    part = gr.Image(url=url).part
    assert (part.media_type, part.url, part.data[:4]) == ("image/png", "", b"\x89PNG")


def test_a_file_has_a_name():
    part = gr.File(b"a,b", media_type="Text/CSV", name="ümläut 1.csv").part
    assert (part.type, part.media_type, part.name, part.line()) == (
        "file",
        "text/csv",
        "ümläut 1.csv",
        "file text/csv, 3 bytes, ümläut 1.csv",
    )


@pytest.mark.rule("AT-4")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (gr.Image, "give the bytes, or url="),
        (lambda: gr.Image(PNG, url="http://a.b/c"), "one of the two"),
        (lambda: gr.Image(b""), "there are no bytes"),
        (lambda: gr.File(b"", media_type="text/plain"), "there are no bytes"),
        (lambda: gr.Image("chart.png"), "read_bytes"),
        (lambda: gr.File(7, media_type="text/plain"), "give bytes"),
        (lambda: gr.Image(b"hello"), "give media_type='image/...'"),
        (lambda: gr.Image(b"%PDF-1.7"), r"application/pdf is no type of images; give a gr.File"),
        (lambda: gr.Image(PNG, media_type="text/plain"), "text/plain is no type of images"),
        (lambda: gr.Image(PNG, media_type=7), "media_type=7"),
        (lambda: gr.File(PNG, media_type="png"), "type/subtype"),
        (lambda: gr.File(PNG, media_type="text/plain; charset=utf-8"), "without parameters"),
        (lambda: gr.File(PNG, media_type="text/pl\nain"), "type/subtype"),
        (lambda: gr.File(PNG, media_type="a/b", name="../a"), "without slashes"),
        (lambda: gr.File(PNG, media_type="a/b", name=""), "1 to 255"),
        (lambda: gr.File(PNG, media_type="a/b", name="n" * 256), "1 to 255"),
        (lambda: gr.File(PNG, media_type="a/b", name="a\nb"), "printable"),
        (lambda: gr.File(PNG, media_type="a/b", name="\ud800"), "printable"),
        (lambda: gr.Image(url="ftp://a.b/c.png"), "http, https or data"),
        (lambda: gr.Image(url="file:///etc/passwd"), "http, https or data"),
        (lambda: gr.Image(url="javascript:alert(1)"), "http, https or data"),
        (lambda: gr.Image(url="//a.b/c.png"), "http, https or data"),
        (lambda: gr.Image(url="http:///c.png"), "http, https or data"),
        (lambda: gr.Image(url="http://a.b:x/c.png"), "http, https or data"),
        (lambda: gr.Image(url="http://a.b/c d.png"), "http, https or data"),
        (lambda: gr.Image(url="http://a.b/\n"), "http, https or data"),
        (lambda: gr.Image(url="http://a.b/" + "c" * 9000), "8,192"),
        (lambda: gr.Image(url=7), "url=7"),
        (lambda: gr.Image(url="data:image/png"), "is no data: address"),
        (lambda: gr.Image(url="data:image/png;base64,???"), "is not base64"),
        (lambda: gr.Image(url="data:image/png;base64,"), "there are no bytes"),
        (lambda: gr.Image(url="data:text/html;base64,aGk="), "text/html is no type of images"),
        (lambda: gr.Image(url="data:image/png,\ud800"), "lone surrogates"),
        (lambda: gr.Image(url="data:image/png," + "%41" * 400_000), "give base64, or at most 1,048,576 characters"),
        (lambda: gr.File(PNG, media_type="a/b", name=".."), "other than . and .."),
        (lambda: gr.File(released(), media_type="a/b"), "released"),
        (lambda: gr.File(Hostile(), media_type="a/b"), "<a Hostile that cannot be shown>"),
        (lambda: gr.File(PNG, media_type=Hostile()), "<a Hostile that cannot be shown>"),
        (lambda: gr.File(PNG, media_type="a/b", name=Hostile()), "<a Hostile that cannot be shown>"),
        (lambda: gr.Image(url=Hostile()), "<a Hostile that cannot be shown>"),
        (lambda: parts_of(Hostile()), "<a Hostile that cannot be shown>"),
        (lambda: parts_of([Hostile()]), "<a Hostile that cannot be shown>"),
        (lambda: parts_of([object.__new__(gr.Image)]), "give a gr.Image"),
        (lambda: parts_of(itertools.repeat(gr.Image(PNG))), "more than 100 images and files"),
    ],
)
def test_what_is_invalid_is_refused_with_the_value_and_the_way_out(make, said):
    with pytest.raises(gr.InvalidAttachment, match=said) as raised:
        make()
    assert isinstance(raised.value, gr.UsageError)


@pytest.mark.rule("AT-3")
def test_the_limit_of_one_attachment():
    assert gr.Image(PNG + bytes(8_283_750)).part.size > 7.89 * 1024 * 1024
    assert gr.File(bytes(MAX_BYTES), media_type="a/b").part.size == MAX_BYTES
    with pytest.raises(gr.InvalidAttachment, match=r"8,388,609 bytes>\): at most 8,388,608 bytes"):
        gr.File(bytes(MAX_BYTES + 1), media_type="a/b")
    with pytest.raises(gr.InvalidAttachment, match="more than 8,388,608 bytes"):
        gr.Image(url="data:image/png;base64," + "A" * (MAX_BYTES * 4 // 3 + 8))


@pytest.mark.rule("AT-3")
def test_the_limits_of_one_message():
    small, half = gr.Image(PNG), gr.File(bytes(MAX_BYTES // 2), media_type="a/b")
    assert len(parts_of([small] * MAX_PARTS)) == MAX_PARTS
    assert len(parts_of([half, half])) == 2
    with pytest.raises(gr.InvalidAttachment, match="101 images and files; give at most 100"):
        parts_of([small] * 101)
    with pytest.raises(gr.InvalidAttachment, match=r"8,388,636 bytes together; one message has at most 8,388,608"):
        parts_of([half, half, small])
    with pytest.raises(InvalidPart, match="101 images"):
        normalise_result([small] * 101)


@pytest.mark.rule("AT-4")
@pytest.mark.parametrize("given", [None, 7, "ab", b"ab", gr.Image(PNG), [PNG], [gr.Image(PNG), "x"], {"a": 1}])
def test_only_a_list_of_attachments_is_one(given):
    with pytest.raises(gr.InvalidAttachment, match=r"attachments.*gr\.Image"):
        parts_of(given)


@pytest.mark.rule("AT-7")
def test_a_result_has_facts_in_place_of_attachments():
    image, file = gr.Image(PNG), gr.File(b"a", media_type="a/b")
    assert normalise_result(image) == (image.part.facts(), (image.part,), None)
    assert normalise_result(["a", image, {"b": 1}, file]) == (
        ["a", image.part.facts(), {"b": 1}, file.part.facts()],
        (image.part, file.part),
        None,
    )
    assert normalise_result((image,))[1] == (image.part,)
    assert normalise_result({"a": [1]}) == ({"a": [1]}, (), None)


@pytest.mark.rule("AT-8")
@pytest.mark.parametrize(
    "value",
    [{"a": gr.Image(PNG)}, [[gr.Image(PNG)]], {1: {2: gr.Image(PNG)}}, [{"a": gr.Image(PNG)}], {gr.Image(PNG)}],
    ids=["dict", "list of lists", "dict of dicts", "list of dicts", "set"],
)
def test_an_attachment_deep_inside_a_result_is_refused(value):
    with pytest.raises(InvalidPart, match=r"has no place here: .* an item of the list that a tool returns"):
        normalise_result(value)
