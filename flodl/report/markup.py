"""Elements of a page. All text is foreign until it went through here: cleaned, and escaped when it is written."""

from __future__ import annotations

from typing import Literal
from xml.etree.ElementTree import Element, tostring

from flodl.record.text import clean

__all__ = ["Node", "data_script", "node", "raw", "written"]

Node = Element


def node(tag: str, *children: Element | str | None, **attributes: object) -> Element:
    """An element. class_ and for_ lose their last line; other ones within a name become hyphens. None is left out."""
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), _text(str(value)))
    last: Element | None = None
    for child in children:
        if isinstance(child, str):
            if last is None:
                made.text = (made.text or "") + _text(child)
            else:
                last.tail = (last.tail or "") + _text(child)
        elif child is not None:
            made.append(child)
            last = child
    return made


def raw(tag: Literal["script", "style"], text: str, **attributes: str) -> Element:
    """Our own text, which is written as it is."""
    made = Element(tag, attributes)
    made.text = text
    return made


def data_script(name: str, json: bytes) -> Element:
    """A JSON document for the page's script. Nothing in it can end the element."""
    text = json.decode().replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return raw("script", text, type="application/json", id=name)


def written(root: Element) -> str:
    """The whole document."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _text(text: str) -> str:
    return "\n".join(clean(line) for line in text.splitlines())
