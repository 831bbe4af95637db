"""Package metadata: what envmgr is called, what it needs, and what it installs.

Tools are configured in ``pyproject.toml``; this file alone says what pip should know.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent


def version() -> str:
    """Reads the version from the package's text: importing it would need its dependencies."""
    text = (HERE / "envmgr" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        raise RuntimeError('envmgr/__init__.py has no line of the form __version__ = "..."')
    return match.group(1)


# Envs that people train on; the tests run each kind. They need no compiler and no screen.
REAL_ENVS = ["ale-py", "gymnasium[mujoco]", "minigrid", "pettingzoo[butterfly]"]

EXTRAS = {
    "ray": ["ray"],
    "sb3": ["stable-baselines3"],
    "pettingzoo": ["pettingzoo"],
    "atari": ["ale-py"],
    "mujoco": ["gymnasium[mujoco]"],
    "minigrid": ["minigrid"],
    "dev": [
        "pytest>=8",
        "pytest-timeout>=2.3",
        "pytest-split>=0.9",
        "pytest-xdist>=3.6",
        "hypothesis>=6.100",
        "ruff>=0.9",
        "mypy>=1.14",
        "import-linter>=2.6",
        "types-PyYAML",
        "types-psutil",
        *REAL_ENVS,
    ],
    "docs": ["sphinx>=8", "furo", "myst-parser>=4"],
}

setup(
    name="envmgr",
    version=version(),
    description="Steps many reinforcement-learning environments at once, through shared memory.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    packages=find_packages(include=["envmgr", "envmgr.*"]),
    package_data={"envmgr": ["py.typed"]},
    python_requires=">=3.11",
    install_requires=[
        "numpy",
        "torch",
        "cloudpickle",
        "easydict",
        "gym>=0.26.2,<0.27",
        "gymnasium>=1.1,<2",
        "pydantic>=2",
        "typer",
        "rich",
        "pyyaml",
        "psutil",
        "matplotlib",
        "threadpoolctl",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["envmgr = envmgr.cli:main"]},
    zip_safe=False,
    classifiers=[
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Typing :: Typed",
    ],
)
