"""Writes the table of keys in config.md from the one place where the keys stand.

Run it after a key has changed: ``python docs/config_table.py``. A test compares the page with it.
"""

from pathlib import Path

from envmgr import ENV_MANAGER_REGISTRY
from envmgr.config.keys import KEYS, OTHER_DEFAULTS, Key

PAGE = Path(__file__).with_name("config.md")
BEGIN = "<!-- the table: python docs/config_table.py -->\n"
END = "<!-- end of the table -->\n"


def table() -> str:
    """The rows of every key that a manager of this version uses."""
    rows = ["| key | default | may be | means | used by |", "| --- | --- | --- | --- | --- |"]
    known = [name for name in ENV_MANAGER_REGISTRY if any(name in key.uses for key in KEYS.values())]
    for key in KEYS.values():
        used_by = [name for name in known if name in key.uses]
        if used_by:
            used = "all" if used_by == known else ", ".join(f"`{name}`" for name in used_by)
            cells = (f"`{key.name}`", default(key), key.allowed, key.doc, used)
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def default(key: Key) -> str:
    """The default, and where another type has another one."""
    if key.name == "context":
        return "`'fork'` on Linux, else `'spawn'`"
    others = [
        f"`{values[key.name]!r}` in `{name}`"
        for name, values in OTHER_DEFAULTS.items()
        if key.name in values and name in ENV_MANAGER_REGISTRY
    ]
    return ", ".join([f"`{key.default!r}`", *others])


def page_with_table(page: str) -> str:
    """The page with the table as it is now."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
