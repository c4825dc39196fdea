"""The reference of the HTTP API as a page: the OpenAPI document, written for people, without scripts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --line: light-dark(#d8dde3, #313a42);
  --soft: light-dark(#f1f4f6, #1b2126);
  --muted: light-dark(#52606b, #9fadb8);
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem }
code { font: 13px ui-monospace, monospace; background: var(--soft); padding: 1px 4px; border-radius: 4px }
code { overflow-wrap: anywhere }
pre { overflow-x: auto } pre code { overflow-wrap: normal }
section { border: 1px solid var(--line); border-radius: 8px; padding: 0.2rem 1rem 1rem; margin: 1rem 0 }
h2 code, h3 code { font-size: 15px } h3 { margin: 1rem 0 0.3rem; font-size: 15px }
table { border-collapse: collapse; width: 100% }
td { vertical-align: top; padding: 4px 12px 4px 0; border-top: 1px solid var(--line) }
nav ul { columns: 22rem; padding-left: 1.1rem } .muted { color: var(--muted) }
"""
INTRODUCTION: Final = """
<p>Requests carry a link's token: <code>Authorization: Bearer TOKEN</code>. Replies are JSON unless stated otherwise;
numbers that JSON lacks are the strings <code>"NaN"</code>, <code>"Infinity"</code> and <code>"-Infinity"</code>. An
error is <code>{"error": {"type": "…", "message": "…"}}</code>. The same for programs is
<code>/api/v1/openapi.json</code>.</p>
<pre><code>curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:7117/api/v1/runs</code></pre>
"""


def written(document: Mapping[str, Any]) -> bytes:
    """Return an OpenAPI document as a page of HTML."""
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = document["components"]["schemas"]
    links = [
        f'<li><a href="#{one["operationId"]}"><code>{method} {_path(path)}</code></a></li>'
        for method, path, one in operations
    ]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>HTTP API of sightglass</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style></head><body><main>",
        f"<h1>HTTP API of sightglass {_text(document['info']['version'])}</h1>{INTRODUCTION}",
        f'<nav aria-label="Requests"><ul>{"".join(links)}</ul></nav>',
        *(part for operation in operations for part in _operation(*operation)),
        "<h2>Types</h2>",
        *(part for name, schema in sorted(schemas.items()) for part in _type(name, schema)),
        "</main></body></html>",
    ]
    return "\n".join(parts).encode()


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section id="{operation["operationId"]}"><h2><code>{method} {_path(path)}</code></h2>'
    yield f"<p>{_text(operation['summary'])}</p>"
    yield from (f"<p>{_text(part)}</p>" for part in operation.get("description", "").split("\n\n") if part)
    if operation["parameters"]:
        yield "<h3>Parameters</h3><table><tbody>"
        for one in operation["parameters"]:
            needed = "" if one["required"] else ' <span class="muted">optional</span>'
            yield f"<tr><td><code>{_text(one['name'])}</code>{needed}</td><td>{_kind(one['schema'])}</td></tr>"
        yield "</tbody></table>"
    if "requestBody" in operation:
        yield f"<h3>Body</h3><p>{_content(operation['requestBody']['content'])}</p>"
    yield f"<h3>Reply</h3><p>{_content(operation['responses']['200']['content'])}</p></section>"


def _type(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section id="type-{name}"><h3><code>{name}</code></h3>'
    yield f"<p>{_text(' '.join(schema.get('description', '').split()))}</p>"
    fields = schema.get("properties", {})
    if fields:
        yield "<table><tbody>"
        yield from (
            f"<tr><td><code>{_text(field)}</code></td><td>{_kind(kind)}</td></tr>" for field, kind in fields.items()
        )
        yield "</tbody></table>"
    else:
        yield f"<p>{_kind(schema)}</p>"
    yield "</section>"


def _content(content: Mapping[str, Any]) -> str:
    return "<br>".join(f"<code>{_text(media)}</code> {_kind(one['schema'])}" for media, one in content.items())


def _kind(schema: Mapping[str, Any]) -> str:
    """Return what a schema allows, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#type-{name}"><code>{name}</code></a>'
    if "enum" in schema:
        said = " or ".join(f"<code>{_text(repr(one))}</code>" for one in schema["enum"])
    elif "anyOf" in schema:
        said = " or ".join(_kind(one) for one in schema["anyOf"])
    elif schema.get("type") == "array":
        said = f"list of {_kind(schema.get('items', {})) or 'any'}"
    elif schema.get("contentEncoding"):
        said = "bytes"
    else:
        kinds = schema.get("type", "")
        said = " or ".join(kinds) if isinstance(kinds, list) else _text(kinds)
    bounds = [f"{word} {schema[key]}" for key, word in BOUNDS.items() if key in schema]
    default = [f"default <code>{_text(repr(schema['default']))}</code>"] if schema.get("default") is not None else []
    return ", ".join(filter(None, [said, *bounds, *default]))


BOUNDS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "maxLength": "characters up to",
    "maxItems": "items up to",
}


def _path(path: str) -> str:
    return re.sub(r"{(\w+)}", r"<i>\1</i>", _text(path))


def _text(text: object) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(str(text), quote=False))
