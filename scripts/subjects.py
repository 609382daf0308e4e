"""Check the subjects of commits: imperative, with a capital, at most 72 characters, no full stop.

    python scripts/subjects.py MESSAGE_FILE   # the message that git is about to commit (a commit-msg hook)
    python scripts/subjects.py                # each commit since this script came; the CI calls it so

Merges are not judged. Without the history (an archive, a shallow clone) nothing can be, and one sentence says so. The
program ends with 1 if a subject is faulty. Only the standard library is used: hooks run outside of the environment.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST = 72
"""Characters of a subject; `git log` and mail clients cut off what is longer."""
PASSED = ("Merge ", 'Revert "', "fixup! ", "squash! ", "amend! ")
"""How subjects begin that git writes itself."""
NO_VERBS = re.compile(
    "A|After|All|Also|An|And|As|At|Before|By|Every|Each|For|From|How|If|In|It|Its|More|New|No|Not|Now|Of|On|Only|Or"
    "|Other|Some|That|The|These|This|To|What|When|Where|Why|With"
)
"""First words that begin no imperative, but are common."""
REPORTS = re.compile(r"[A-Z]\w*(?:ed|ing|[^sui]s)")
"""The look of "Added", "Adding" and "Adds"."""
VERBS = re.compile(
    "Alias|Bias|Bleed|Breed|Bring|Cling|Embed|Exceed|Feed|Fling|Heed|Need|Ping|Proceed|Ring|Seed|Shed|Shred|Sing|Sling"
    "|Speed|Spring|Sting|String|Succeed|Swing|Wed|Weed|Wring"
)
"""Imperatives that look like REPORTS."""


def faults(message: str) -> Iterator[str]:
    """The faults of a commit's message, one sentence each. Only common words are known to be no imperative."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if subject.startswith(PASSED):
        return
    first = re.split(r"\W", subject, maxsplit=1)[0]
    if not re.match(r"[A-Z]", subject):
        yield "begin with a capital letter, without a prefix"
    elif NO_VERBS.fullmatch(first) or (REPORTS.fullmatch(first) and not VERBS.fullmatch(first)):
        yield f"begin with an imperative, not with {first!r} ('Add', not 'Added' or 'Adds')"
    if re.match(r"\w+(\([^)]*\))?!?: ", subject):
        yield "say what the commit does without a prefix"
    if len(subject) > LONGEST:
        yield f"{len(subject)} characters; use at most {LONGEST}, and the body for the reason"
    if subject.endswith("."):
        yield "leave out the full stop"
    if len(lines) > 1 and lines[1]:
        yield "leave the second line empty"


def git(*words: str) -> str:
    """What a git command prints, run in the folder of this script."""
    command = ["git", *words]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout  # noqa: S603


def messages() -> Iterator[tuple[str, str]]:
    """(Abbreviated hash, message) of each commit that descends from the one that added this script."""
    first_commits = git("log", "--diff-filter=A", "--format=%H", "--", Path(__file__).name).split()
    if not first_commits:
        return
    # Commits of branches that began earlier are no descendants: they were written without the rule.
    log = git("log", "--no-merges", "--ancestry-path", "--format=%h%n%B%x00", f"{first_commits[-1]}..HEAD")
    for entry in log.split("\0"):
        commit, _, message = entry.strip("\n").partition("\n")
        if commit:
            yield commit, message


def main(arguments: list[str]) -> int:
    """Check a file with a message, or the history."""
    if arguments:
        pairs = [("the message", Path(arguments[0]).read_text(encoding="utf-8"))]
    else:
        try:
            if git("rev-parse", "--is-shallow-repository").strip() == "true":
                print("subjects: not checked, the clone is shallow")
                return 0
            pairs = list(messages())
        except (OSError, subprocess.CalledProcessError):
            print("subjects: not checked, there is no history")
            return 0
    faulty = [(commit, message, list(faults(message))) for commit, message in pairs]
    faulty = [(commit, message, reasons) for commit, message, reasons in faulty if reasons]
    for commit, message, reasons in faulty:
        print(f"{commit}: {message.partition(chr(10))[0]}")
        print("".join(f"  {fault}\n" for fault in reasons), end="")
    if not arguments:
        print(f"subjects: {len(pairs)} commits, {len(faulty)} faulty")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
