"""The parts of the site of documents beyond the pages of docs/: linked files, the reference, ids of rules, diagrams.

MkDocs calls the functions named on_... in the order of the "Events" of its guide for plugins; `make docs` runs it.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.superfences import fence_code_format

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the project."""
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
"""The target of a link or an image in Markdown."""
RULE = re.compile(r"\[([A-Z]{1,3}-\d+)\]")
"""The id of a rule, as tests/rules.py reads it."""
CODE = re.compile(r"(^```.*?^```\s*$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
"""A block or a piece of code; nothing in it is an id."""
BRACKETS = re.compile(r"(?<![\]\\!])\[([^\]\[]+)\](?![(\[:])")
"""Brackets that are no link: pages write optional fields so. mkdocs-autorefs would look for a heading of the name."""
PROJECT = "project/"
"""The folder of the site with files from outside of docs/."""
SHEET = "assets/site.css"
MERMAID = "assets/mermaid.min.js"
MERMAID_FILE = ROOT / "build/site-assets/mermaid@11.12.0/dist/mermaid.min.js"
"""Draws the diagrams; scripts/site/assets.sh gets it with npm. Without it, the site shows their text."""
SHIM = "assets/iframe-worker.js"
SHIM_FILE = ROOT / "build/site-assets/iframe-worker@1.0.4/shim/index.js"
"""Lets a page that was opened from a folder search. The theme would load it from another host."""
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
"""The title of a part of docs/README.md, which is a part of the menu."""


def modules() -> list[Path]:
    """The files of the public modules: those of the package itself, and the packages that are public as a whole."""
    package = ROOT / "src/greenroom"
    files = [path for path in sorted(package.glob("*.py")) if not path.stem.startswith("_")]
    rooms = [package / room / "__init__.py" for room in ("transport", "supervision", "supervision/chaos", "actors/abc")]
    return [package / "__init__.py", *files, *sorted(package.glob("aio/__init__.py")), *rooms]


def public_names(module: Path) -> list[str]:
    """The names in `__all__` of a module, in order, without those of its own modules and without `__version__`."""
    for statement in ast.parse(module.read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name("__all__")], value=value):
                names: list[str] = ast.literal_eval(value)
                inner = [module.parent / name for name in names]
                modules = {path.name for path in inner if path.is_dir() or path.with_suffix(".py").is_file()}
                return [name for name in names if name not in modules and not name.startswith("_")]
    raise ValueError(f"{module} has no __all__: the reference would not know its names")


def reference(module: Path) -> tuple[str, str]:
    """The dotted name of a public module, and the page with its names, in the order of `__all__`."""
    parts = module.relative_to(ROOT / "src").with_suffix("").parts
    name = ".".join(part for part in parts if part != "__init__")
    entries = [f"::: {name}.{public}\n" for public in public_names(module)]
    own = {"members": "[]", "show_root_heading": "false", "show_root_toc_entry": "false"}
    options = "".join(f"      {option}: {value}\n" for option, value in own.items())
    return name, f"# {name}\n\n::: {name}\n    options:\n{options}\n" + "\n".join(entries)


def linked_files(page: Path) -> Iterator[Path]:
    """The files of the project outside of docs/ that a page links to."""
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        address = urldefrag(target).url
        if not address or ":" in address:
            continue
        path = (page.parent / address).resolve()
        if path.is_file() and path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "docs"):
            yield path


def address_of(path: Path) -> str:
    """The address of a file of the project among the sources of the site."""
    inside = path.is_relative_to(ROOT / "docs")
    return path.relative_to(ROOT / "docs").as_posix() if inside else PROJECT + path.relative_to(ROOT).as_posix()


def origin(address: str) -> Path:
    """The file of the project behind an address among the sources of the site."""
    return ROOT / address.removeprefix(PROJECT) if address.startswith(PROJECT) else ROOT / "docs" / address


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the style sheet, and what scripts/site/assets.sh has got."""
    config.extra_css.append(SHEET)
    config.extra["polyfills"] = [SHIM]
    if MERMAID_FILE.is_file():
        config.extra_javascript.append(MERMAID)
        fences = [{"name": "mermaid", "class": "mermaid", "format": fence_code_format}]
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": fences}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference, the assets, and whatever pages link to outside of docs/, and what those link to in turn."""
    reference_names = []
    for module in modules():
        name, text = reference(module)
        reference_names.append(name)
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    files.append(File.generated(config, SHEET, abs_src_path=str(ROOT / "scripts/site/site.css")))
    if MERMAID_FILE.is_file():
        files.append(File.generated(config, MERMAID, abs_src_path=str(MERMAID_FILE)))
    shim = SHIM_FILE.read_bytes() if SHIM_FILE.is_file() else b""
    files.append(File.generated(config, SHIM, content=shim))
    waiting = [ROOT / "docs" / file.src_uri for file in files.documentation_pages() if not file.generated_by]
    taken_paths: set[Path] = set()
    while waiting:
        for path in linked_files(waiting.pop()):
            if path not in taken_paths:
                taken_paths.add(path)
                files.append(File.generated(config, address_of(path), abs_src_path=str(path)))
                if path.suffix == ".md":
                    waiting.append(path)
    config.nav = menu(files, reference_names)
    return files


def menu(files: Files, reference_names: list[str]) -> list[Any]:
    """The menu: the start, the parts of docs/README.md with their pages, the reference, and every other page."""
    start = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    references = [f"reference/{name}.md" for name in reference_names]
    pages = [file.src_uri for file in files.documentation_pages() if file.src_uri not in references]
    sections: list[Any] = ["README.md"]
    in_parts = {"README.md"}
    _, *parts = HEADING.split(start)
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        entries = [target for target in LINK.findall(text) if target in pages and "/" not in target]
        in_parts.update(entries)
        sections.append({title: entries})
    sections.append({"Reference": references})
    others = sorted(page for page in pages if page not in in_parts)
    folders = {page.partition("/")[0] for page in others}
    sections.extend(
        {folder.title(): [page for page in others if page.startswith(f"{folder}/")]} for folder in sorted(folders)
    )
    return sections


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links out of docs/ into links of the site, and the ids of rules into anchors beside the text."""
    source = page.file.src_uri
    if source.startswith("reference/"):
        return markdown
    pieces = CODE.split(markdown)
    return with_links("".join(piece if piece.startswith("`") else with_rules(piece) for piece in pieces), source)


def with_rules(text: str) -> str:
    """A text of a page, in which each rule's id is a small link to itself, and other brackets are brackets."""
    return BRACKETS.sub(r"\\[\1\\]", RULE.sub(r'<a class="rule" id="\1" href="#\1">\1</a>', text))


def with_links(text: str, source: str) -> str:
    """A text of the page `source`, in which links to files of the project lead to their copies in the site."""

    def target(match: re.Match[str]) -> str:
        address, anchor = urldefrag(match[1])
        if not address or ":" in address:
            return match[1]
        path = (origin(source).parent / address).resolve()
        if not path.is_file():
            return match[1]
        address = posixpath.relpath(address_of(path), posixpath.dirname(source) or ".")
        return f"{address}#{anchor}" if anchor else address

    return LINK.sub(target, text)
