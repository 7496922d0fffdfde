"""Let the reference render our `Example:` sections as code; the parser knows only `Examples:`."""

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE
            )
