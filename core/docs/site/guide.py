"""Makes one guide of pages that are beside the code that they describe. MkDocs calls the functions ``on_…``.

A page keeps its links as they are for readers of the repository. Here they become links between pages of
the guide. What is no page of it, such as a source, is named without a link.
"""

import os
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[3]
FENCE = re.compile(r"^(```+)(.*?)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s]+)\)")


def anchor(heading, _separator):
    """Returns the anchor of a heading as hosts of repositories make it."""
    kept = (c for c in heading.lower() if c.isalnum() or c in " -_")
    return "".join(kept).replace(" ", "-")


def path_of(page):
    return Path(os.path.realpath(page.file.abs_src_path))


def on_config(config):
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor


def on_files(files, config):
    for uri, path in config.extra["beside"].items():
        source = ROOT / path
        files.append(File.generated(config, uri, abs_src_path=str(source)))


def on_page_markdown(markdown, page, config, files):
    here = Path(page.file.abs_src_path).parent
    places = {os.path.realpath(file.abs_src_path): file.src_uri for file in files if file.abs_src_path}

    def link(match):
        picture, text, target = match.groups()
        path, hash, section = target.partition("#")
        if "://" in target or not path:
            return match[0]
        # An item of the code, which rustdoc links.
        if "::" in path:
            return text
        place = os.path.realpath(here / path)
        if place in places:
            target = os.path.relpath(places[place], os.path.dirname(page.file.src_uri) or ".")
            return f"{picture}[{text}]({target}{hash}{section})"
        # What does not exist stays a link, and the build refuses it.
        return text if os.path.exists(place) else match[0]

    # Python-Markdown leaves alone what is in such an element; here each is a section.
    if path_of(page) == ROOT / "README.md":
        markdown = re.sub(r"^<details.*?<summary>(.*?)</summary>$", r"### \1", markdown, flags=re.MULTILINE)
        markdown = markdown.replace("</details>\n", "")

    def code(match):
        kind, body = match[2].split(",")[0], match[3]
        if kind == "rust":
            # What only the compiler has to see.
            shown = [line for line in body.splitlines() if line != "#" and not line.startswith("# ")]
            body = "\n".join(shown) + "\n"
        return f"```{kind}\n{body}```"

    done, end = [], 0
    for block in FENCE.finditer(markdown):
        done += [LINK.sub(link, markdown[end : block.start()]), code(block)]
        end = block.end()
    return "".join([*done, LINK.sub(link, markdown[end:])])


def on_page_content(html, page, config, files):
    # In a table, a bar is escaped for hosts of repositories, also within code.
    return re.sub(r"^<td.*</td>$", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.MULTILINE)
