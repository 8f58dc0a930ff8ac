"""Builds the wheel with maturin, and the `nettorrent` program that comes with it."""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # noqa: F401
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

HERE = Path(__file__).resolve().parent
WORKSPACE = HERE.parent.parent


def add_program() -> None:
    """Puts the program where maturin looks for scripts; `NETTORRENT_PROGRAM` names one that is built already."""
    program = os.environ.get("NETTORRENT_PROGRAM")
    if not program:
        subprocess.run(["cargo", "build", "--release", "--package", "nettorrent"], cwd=WORKSPACE, check=True)
        target = Path(os.environ.get("CARGO_TARGET_DIR", WORKSPACE / "target"))
        program = target / "release" / ("nettorrent.exe" if os.name == "nt" else "nettorrent")
    scripts = HERE / "data" / "scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    shutil.copy2(program, scripts)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    add_program()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    add_program()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)
