"""A hook of mkdocs: the pages that are made from the code, and the files of the repository that pages link to.

The reference has one page per command, written by the command line itself, and one page per public module, with every
public name in it. CHANGELOG.md and others in the root become pages; any other file that a page links to is copied.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
MODULES = (  # in the order in which a reader needs them
    "macs",
    "macs.data",
    "macs.nets",
    "macs.training",
    "macs.methods",
    "macs.losses",
    "macs.scores",
    "macs.metrics",
    "macs.evaluation",
    "macs.detector",
    "macs.sklearn",
    "macs.experiments",
    "macs.experiments.margins",
    "macs.report",
    "macs.inference",
)
MARKER = re.compile(r"([-*]|\d\.) (?=\S)")  # of an item of a list, at the beginning of a line
FAR_RIGHT = re.compile(r"(?<=\S) {4,}(?=\()")  # before the number of an equation, which ends at column 120 in the code
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages into the navigation."""
    reference = next(item["Reference"] for item in config.nav if "Reference" in item)
    reference.append({"Commands": [{f"macs {name}": f"commands/{name}.md"} for name in commands()]})
    reference.append({"Python": [{name: f"python/{name}.md"} for name in MODULES]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    linked = {target for file in files.documentation_pages() for target in files_linked_from(file)}
    for path in sorted(linked):
        files.append(File.generated(config, f"repository/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files outside docs/ lead to their places on the site."""
    up = "../" * page.file.src_uri.count("/")
    from_root = page.file.src_uri in ROOT_PAGES.values()

    def moved(match: re.Match[str]) -> str:
        target = outside(match[1], from_root)
        if target is None:
            return match[0].replace("](docs/", "](") if from_root else match[0]
        return f"]({up}{ROOT_PAGES.get(target, f'repository/{target}')}{match[2] or ''})"

    return with_lists_as_on_github(LINK.sub(moved, markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the number of an equation beside it, as a page is narrower than the code; let the keyboard scroll tables."""
    html = html.replace("<table>", '<table tabindex="0">')
    return FAR_RIGHT.sub("   ", html) if page.file.src_uri.startswith("python/") else html


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Give the theme's search a name, which a screen reader says."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def with_lists_as_on_github(markdown: str) -> str:
    """Indent what belongs to an item of a list by four spaces, and put an empty line before a list.

    CommonMark, and so GitHub, needs only the width of the item's marker, and no empty line; Python-Markdown needs both.
    """
    lines: list[str] = []
    fenced, paragraphs = False, False  # whether inside of a fence; whether the current item has several paragraphs
    width = 0  # of the marker of the current list; 0 outside of lists
    for line in markdown.split("\n"):
        fenced ^= line.startswith("```")
        marker = None if fenced else MARKER.match(line)
        if marker:
            if (not width or paragraphs) and lines and lines[-1].strip():
                lines.append("")
            width, paragraphs = len(marker[0]), False
        elif line.strip() and not line.startswith(" "):
            width = 0
        indented = width and not marker and line.startswith(" " * width)
        paragraphs |= bool(indented and lines and not lines[-1].strip())
        lines.append(" " * (4 - width) + line if indented else line)
    return "\n".join(lines)


def outside(link: str, from_root: bool) -> str | None:
    """The path, from the root of the repository, of a linked file that is not in docs/."""
    if "://" in link or link.startswith("mailto:"):
        return None
    path = (ROOT / ("" if from_root else "docs") / link).resolve()
    if not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / "docs") or not path.is_file():
        return None
    return path.relative_to(ROOT).as_posix()


def files_linked_from(file: File) -> Iterator[str]:
    from_root = file.src_uri in ROOT_PAGES.values()
    if "/" in file.src_uri:  # generated from the code
        return
    for match in LINK.finditer(file.content_string):
        target = outside(match[1], from_root)
        if target is not None and target not in ROOT_PAGES:
            yield target


def generated_pages() -> dict[str, str]:
    pages = {page: (ROOT / path).read_text(encoding="utf-8") for path, page in ROOT_PAGES.items()}
    pages |= {f"commands/{name}.md": command_page(name) for name in commands()}
    shown: dict[str, str] = {}
    return pages | {f"python/{name}.md": module_page(name, shown) for name in MODULES}


def commands() -> list[str]:
    """The commands in the order of `macs --help`."""
    from macs.cli import COMMANDS

    return [name for group in COMMANDS.values() for name in group]


def command_page(name: str) -> str:
    from macs.cli._app import app

    page = app[name].generate_docs(output_format="markdown", usage_name=f"macs {name}")
    page = re.sub(r"^(macs [a-z ]+) -m mkdocs\b", r"\1", page, flags=re.MULTILINE)  # cyclopts adds how it was started
    return page.replace(f"# {name}\n", f"# macs {name}\n", 1)


def module_page(name: str, shown: dict[str, str]) -> str:
    """The docstring of a module, and every public name in it; `shown` says which definition is on which page."""
    module = importlib.import_module(name)
    parts = [f"# {name}", inspect.getdoc(module) or ""]
    parts += [entry(name, public, getattr(module, public), shown) for public in public_names(module)]
    return "\n\n".join(parts)


def public_names(module: ModuleType) -> list[str]:
    """Those in `__all__`; without it, the functions and classes that the module itself defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    ]


def entry(module: str, name: str, value: Any, shown: dict[str, str]) -> str:
    """One public name: its documentation, or a link to the module where that is."""
    heading = f"## `{name}` {{ #{module}.{name} }}\n\n"
    if isinstance(value, ModuleType):
        return f"{heading}A module: [{module}.{name}]({module}.{name}.md)."
    if inspect.isfunction(value) or inspect.isclass(value):
        definition = f"{value.__module__}.{value.__qualname__}"
        if definition in shown:
            return f"{heading}See [{shown[definition]}]({shown[definition].rpartition('.')[0]}.md#{shown[definition]})."
        shown[definition] = f"{module}.{name}"
        return f'<a id="{module}.{name}"></a>\n\n::: {definition}'
    if type(value).__module__.startswith("macs."):
        return f"{heading}A `{type(value).__name__}`: {first_paragraph(type(value))}"
    return f"{heading}`{value!r}`"


def first_paragraph(value: Any) -> str:
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
