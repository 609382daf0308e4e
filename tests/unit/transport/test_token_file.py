"""A file of tokens: what it may hold, and that a gateway notices each change of it."""

import os
import secrets
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest

from greenroom.actors.errors import UsageError
from greenroom.transport import SignInRefusal, SignInRequest, token_file
from greenroom.transport.gateway.access import SCOPES, everything
from greenroom.transport.gateway.sign_ins.token_file import LONGEST_FILE, TokenEntry, TokenFile, entries_of, entry_of

TOKEN = "the token of ann"
DIGEST = sha256(TOKEN.encode()).hexdigest()
OTHER = "0" * 64
LINE = f"ann follow never {DIGEST}\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tokens"
    write(path, LINE)
    return path


def write(path, text):
    path.write_text(text)
    path.chmod(0o600)


async def who(sign_in, token=TOKEN):
    return (await sign_in.answer(SignInRequest(token=token))).answer


# --- lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["", "   ", "# ann", "  # a b c d", "#"])
def test_comments_and_empty_lines_are_no_tokens(line):
    assert entry_of(line) is None


@pytest.mark.parametrize(
    "line",
    [LINE, f"  ann\tfollow   never {DIGEST.upper()}  # of her laptop", f"ann follow never {DIGEST} # x # y\r"],
)
def test_a_line_may_have_any_blanks_and_a_comment(line):
    entry = entry_of(line)
    assert (entry.name, entry.scopes, entry.own, entry.expires) == ("ann", {"follow"}, False, None)
    assert entry.digest.hex() == DIGEST


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ann", "four words, NAME SCOPES EXPIRES SHA-256, and here are 1"),
        (f"ann follow {DIGEST}", "here are 3"),
        (f"ann b follow never {DIGEST}", "here are 5"),
        (f"ann follow never {DIGEST} #x", None),
        (f"ann follow never {DIGEST[:-1]}", "no SHA-256"),
        (f"ann follow never {TOKEN.replace(' ', '-')}", "no SHA-256, which is 64 hexadecimal digits"),
        (f"ann root never {DIGEST}", "the scope 'root' is not known; give some of follow, decide, start, admin"),
        (f"ann follow,,decide never {DIGEST}", "the scope '' is not known"),
        (f"ann own never {DIGEST}", "there is no scope"),
        (f"ann follow soon {DIGEST}", "'soon' is no time with a zone: write 2027-01-31T00:00:00Z, or never"),
        (f"ann follow 2027-01-31T00:00:00 {DIGEST}", "no time with a zone"),
        (f"ann follow 99999-01-31T00:00:00Z {DIGEST}", "no time with a zone"),
        (f"{'a' * 129} follow never {DIGEST}", "is no name: give 1 to 128 characters"),
        (f"a\x07 follow never {DIGEST}", "is no name"),
    ],
)
def test_a_line_that_cannot_be_is_refused_and_names_value_file_and_line(line, words, tmp_path):
    if words is None:
        assert entry_of(line) is not None
        return
    with pytest.raises(UsageError) as caught:
        entries_of(f"# first\n{line}\n", tmp_path / "tokens")
    assert words in str(caught.value)
    assert "tokens, line 2: " in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_a_token_is_there_once_and_a_name_as_often_as_it_likes(tmp_path):
    assert len(entries_of(LINE + f"ann follow never {OTHER}", tmp_path)) == 2
    with pytest.raises(UsageError, match=f"line 2: the token {DIGEST[:12]} has a line already"):
        entries_of(LINE + f"bob follow never {DIGEST}", tmp_path)


def test_every_entry_is_read_from_its_own_line(rng):
    for number in range(200):
        entry = TokenEntry(
            name=f"n{number}",
            scopes=frozenset(rng.sample(SCOPES, rng.randint(1, 4))),
            own=rng.random() < 0.5,
            expires=None if rng.random() < 0.5 else datetime(2027, 1, 1, tzinfo=UTC) + timedelta(minutes=number),
            digest=secrets.token_bytes(32),
        )
        assert entry_of(entry.line()) == entry


# --- the file --------------------------------------------------------------------------------------------------------


async def test_a_token_of_the_file_has_its_principal_and_no_other_text_has_one(path):
    write(path, LINE + f"bob follow,own never {OTHER}")
    sign_in = token_file(path)
    ann = await who(sign_in)
    assert (ann.name, ann.scopes, ann.sees) == ("ann", {"follow"}, everything)
    for token in ("", "x", DIGEST, OTHER, "\udc80"):
        assert await who(sign_in, token) is None
    assert (await sign_in.answer(SignInRequest())).answer is None


async def test_an_own_token_sees_the_runs_that_its_principal_started(path):
    write(path, f"ann follow,own never {DIGEST}")
    ann = await who(token_file(path))

    class Info:
        run_id, by = "run", "ann"

    assert ann.sees(Info)
    Info.by = "bob"
    assert not ann.sees(Info)


async def test_an_expired_token_is_refused_with_its_name(path):
    write(path, f"ann follow 2020-01-01T00:00:00Z {DIGEST}")
    assert await who(token_file(path)) == SignInRefusal(message="the token of ann has expired")


def in_place(path, text):
    path.write_text(text)


def by_rename(path, text):
    draft = path.with_name("draft")
    write(draft, text)
    os.replace(draft, path)


def by_rename_unnoticed(path, text):
    """Put another file in its place that has the same size and times."""
    facts, draft = path.stat(), path.with_name("draft")
    write(draft, text)
    os.utime(draft, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    os.replace(draft, path)


def by_link(path, text):
    """Change the link to another folder, as Kubernetes does for a secret."""
    (path.parent / "next").mkdir(exist_ok=True)
    write(path.parent / "next" / "tokens", text)
    link = path.with_name("link")
    link.symlink_to(path.parent / "next" / "tokens")
    os.replace(link, path)


@pytest.mark.parametrize("change", [in_place, by_rename, by_rename_unnoticed, by_link])
async def test_a_change_of_the_file_is_noticed_within_two_seconds(change, path, mock_clock):
    sign_in = token_file(path)
    assert (await who(sign_in)).name == "ann"
    change(path, LINE.replace(DIGEST, OTHER))
    mock_clock.jump(2)
    assert await who(sign_in) is None
    change(path, LINE.replace("ann", "eva"))
    mock_clock.jump(2)
    assert (await who(sign_in)).name == "eva"


@pytest.mark.parametrize("how", ["gone", "invalid", "writable", "binary", "large", "folder"])
async def test_a_file_that_is_lost_or_broken_leaves_the_tokens_in_force_and_is_logged(how, path, mock_clock, caplog):
    sign_in = token_file(path)
    match how:
        case "gone":
            path.unlink()
        case "invalid":
            write(path, "ann")
        case "writable":
            path.chmod(0o622)
        case "binary":
            path.write_bytes(b"\xff\xfe")
        case "large":
            write(path, "#" * (LONGEST_FILE + 1))
        case _:
            path.unlink()
            path.mkdir()
    for _ in range(3):
        mock_clock.jump(2)
        assert (await who(sign_in)).name == "ann"
    assert caplog.text.count("the tokens of the last reading stay in force") == 1, "logged once, not each second"
    if how == "folder":
        path.rmdir()
    write(path, "# nobody")
    mock_clock.jump(2)
    assert await who(sign_in) is None, "an empty file is a file without tokens"


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda path: path.unlink(), "No such file or directory; make it with `greenroom token add`"),
        (lambda path: path.chmod(0o620), "other users can write the file of tokens"),
        (lambda path: path.write_text("ann"), "line 1: a line has four words"),
        (lambda path: path.write_bytes(b"\xff"), "is no text in UTF-8"),
        (lambda path: path.write_text("#" * 2_000_000), "is larger than 1048576 bytes"),
    ],
)
def test_a_gateway_does_not_start_with_a_file_that_cannot_be_read(break_it, words, path):
    break_it(path)
    with pytest.raises(UsageError) as caught:
        token_file(path)
    assert words in str(caught.value)


def test_a_large_file_is_read_in_linear_time(path):
    lines = [f"n{number} follow never {number:064x}" for number in range(8_000)]
    write(path, "\n".join(lines))
    assert "with 8000 tokens" in repr(TokenFile(path))
