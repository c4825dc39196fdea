"""What the documentation site has beside `docs/`: the API's reference, and pages and files of the repository."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
FOLDERS = ("deploy", "examples", "src/sightglass/storage/format")  # that pages link to
REFERENCE = {
    "Offer and record": "init Facts Run Limits Ranks Files adopt",
    "Find and connect": "runs connect RunInfo RemoteRun RankGroup fleet Fleet FleetReport",
    "Ask": "on Query fn parse Answer stream Stream Record Restart",
    "Recorded runs": "open RecordedRun RecordedRuns Annotations Series",
    "Values": "Tensor Histogram Image Images Audio Table Figure Text",
    "Look": "plot diagnose Diagnosis Finding save_page PageFile",
}
MODULES = ("testing", "figures", "jax", "torch", "flax", "callbacks", "trackers", "wandb", "trackio")


def reference() -> str:
    """Return the page of the API.

    Raises:
        ValueError: A public name has no place on it.
    """
    sys.path.insert(0, str(ROOT / "src"))
    import sightglass

    errors = sorted(name for name in sightglass.__all__ if name.endswith(("Error", "Errors")))
    groups = {title: names.split() for title, names in REFERENCE.items()} | {"Errors": errors}
    if unplaced := set(sightglass.__all__) - {"__version__"}.union(*groups.values()):
        raise ValueError(f"Expected each public name in docs/site.py, these are not: {sorted(unplaced)}")
    lines = ["# API", "", "What `import sightglass as sg` has, then the packages beside it."]
    for title, names in groups.items():
        lines += ["", f"## {title}", *(f"\n::: sightglass.{name}" for name in names)]
    for name in MODULES:
        lines += ["", f"## sightglass.{name}", f"\n::: sightglass.{name}\n    options:\n      show_root_heading: false"]
    return "\n".join(lines)


def on_config(config: Any) -> Any:
    """Let pages link to the repository, if `pyproject.toml` has its address."""
    config.repo_url = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {}).get("Repository")
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add what is not in `docs/`. The README is the first page, and `docs/index.md`, the list of all pages, another."""
    for name, content in {"index.md": ROOT / "README.md", "all-pages.md": ROOT / "docs/index.md"}.items():
        if (old := files.get_file_from_path(name)) is not None:
            files.remove(old)
        files.append(File.generated(config, name, content=content.read_text()))
    for name in PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    files.append(File.generated(config, "api.md", content=reference()))
    return files


def on_post_build(*, config: Any) -> None:
    """Write `llms.txt`, the list of all pages for language models: https://llmstxt.org."""
    pages = (ROOT / "docs/index.md").read_text().split("\n## ", 1)[0]
    rows = re.findall(r"^\| \[(.+?)\.md\]\(.+?\) \| (.+?) \|$", pages, re.M)
    listed = [f"- [{name}]({name}.html): {why}" for name, why in rows]
    text = ["# Sightglass", "", "> Ask a training run anything while it runs.", "", "## Pages", "", *listed, ""]
    Path(config.site_dir, "llms.txt").write_text("\n".join(text))


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links that leave `docs/`, or enter it, name the same page on the site."""
    name = page.file.src_uri
    if name in PAGES or name == "index.md":
        return markdown.replace("](docs/index.md", "](all-pages.md").replace("](docs/", "](")
    return markdown.replace("](../README.md", "](index.md").replace("](../", "](")


class Examples(griffe.Extension):
    """Shows the examples of docstrings as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence each block that begins with `>>>`."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^>>> .*?(?=\n\n|\Z)", r"```pycon\n\g<0>\n```", obj.docstring.value, flags=re.MULTILINE | re.DOTALL
            )
