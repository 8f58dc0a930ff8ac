"""What the comparisons share: the environment with PyTorch, the binary, the machine, tables."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
# What an environment must hold: the fixtures and `interop.py` use the last two.
PACKAGES = ["torch", "safetensors", "numpy"]


def note(text):
    print(text, file=sys.stderr, flush=True)


# The environment and the binary.

def has(python, packages):
    found = subprocess.run([python, "-c", f"import {', '.join(packages)}"], capture_output=True)
    return found.returncode == 0


def torch_python():
    env = Path(os.environ.get("NETTORRENT_TORCH_ENV") or ROOT / "target" / "torch-env")
    python = env / "bin" / "python"
    if python.exists() and has(python, ["torch"]):
        return python
    if not python.exists():
        note(f"making a virtual environment in {env}")
        subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    note("installing " + ", ".join(PACKAGES) + " (once; PyTorch is large)")
    wanted = [torch_requirement(python)] + PACKAGES[1:]
    # Output goes to stderr: stdout holds the table only.
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True, stdout=sys.stderr)
    return python


def torch_requirement(python):
    """The newest CPU-only build where pip's index offers one (its version ends in `+cpu`), else the ordinary one."""
    listing = subprocess.run([python, "-m", "pip", "index", "versions", "torch"], capture_output=True, text=True)
    for line in listing.stdout.splitlines():
        if line.startswith("Available versions:"):
            versions = [v.strip() for v in line.split(":", 1)[1].split(",")]
            return next((f"torch=={v}" for v in versions if v.endswith("+cpu")), "torch")
    return "torch"


def engine_binary(given):
    if given:
        return Path(given).resolve()
    subprocess.run(["cargo", "build", "--release"], cwd=ROOT, check=True, stdout=sys.stderr)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or "target")
    return ROOT / target / "release" / "nettorrent"


# The machine.

def cpu_model():
    if sys.platform == "darwin":
        return output(["sysctl", "-n", "machdep.cpu.brand_string"])
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def output(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def machine():
    commit = output(["git", "rev-parse", "--short=12", "HEAD"]) or "unknown"
    if output(["git", "status", "--porcelain", "--untracked-files=no"]):
        commit += " with changes"
    return {
        "cpu": cpu_model(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
        "commit": commit, "time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        # Of the last minute, before we started: well above 0 means that others used the machine.
        "load_before": round(os.getloadavg()[0], 2),
    }


def machine_line(m):
    torch = f"PyTorch {m['torch']}; " if "torch" in m else ""
    return (f"{m['cpu']}, {m['cores']} cores, {m['system']}; {torch}commit {m['commit']}; {m['time']}; "
            f"load {m['load_before']} before")


# Printing.

def as_table(header, rows, markdown):
    rows = [header] + rows
    if markdown:
        rows.insert(1, ["---"] + ["--:"] * (len(header) - 1))
        return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths)))
        for cells in rows
    )
