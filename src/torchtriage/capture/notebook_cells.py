"""The cells of a notebook: events name the cell, `cell In[3]`, instead of the temporary file that IPython compiles."""

import dataclasses
import re
import sys
from typing import Any, TypeVar

from torchtriage.recording.events import Event, Placed, StackEntry
from torchtriage.recording.sources import cell_path, name_cell

P = TypeVar("P", bound=Placed)

# torch leaves out the leading slash where it names the line behind a guard.
_CELL_FILE = re.compile(r"""[^\s"'<>()]*\bipykernel_\d+[/\\]\d+\.py|<ipython-input-\d+-\w+>""")
_NUMBERED = re.compile(r"<ipython-input-(\d+)-")


class NotebookCells:
    """The names of the cells in one observation. A cell that is run again keeps its first number in it."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def named(self, event: Event) -> Event:
        """The event with the names of cells in place of their files; the event itself outside a notebook."""
        if "IPython" not in sys.modules or not isinstance(event, Placed):
            return event
        return self._with_names(event)

    def _with_names(self, event: P) -> P:
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(event):
            value = getattr(event, field.name)
            named = self._value(value)
            if named != value:
                changed[field.name] = named
        return dataclasses.replace(event, **changed) if changed else event

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return _CELL_FILE.sub(lambda match: self._name(match[0]), value)
        if isinstance(value, StackEntry):
            return dataclasses.replace(value, path=self._value(value.path))
        if isinstance(value, tuple):
            return tuple(map(self._value, value))
        return value

    def _name(self, file: str) -> str:
        """The name of the cell with this file; the file itself if IPython does not know it."""
        if file not in self._names:
            number = _number(file)
            if number is None:
                return file
            self._names[file] = cell_path(number)
            name_cell(number, file)
        return self._names[file]


def _number(file: str) -> str | None:
    """The number of the cell in the notebook, which IPython keeps with the file."""
    numbered = _NUMBERED.match(file)
    if numbered:
        return numbered[1]
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    label = getattr(getattr(shell, "compile", None), "format_code_name", None)
    if label is None:
        return None
    for name in (file, f"/{file}"):
        found = label(name)     # ("Cell", "In[3]")
        match = re.fullmatch(r"In\s*\[(\d+)\]", found[1]) if found else None
        if match:
            return match[1]
    return None
