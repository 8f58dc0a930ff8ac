"""MNIST's files as they are published, plain or gzip: reads them, and writes smaller sets of the same form."""

import gzip
import struct
import sys
from pathlib import Path

IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
MEAN, DEVIATION = 0.1307, 0.3081


def read(folder, part):
    """The pictures and labels of `train` or `t10k`, as bytes."""
    images, labels = (content(Path(folder), f"{part}-{kind}") for kind in (IMAGES, LABELS))
    n, = struct.unpack(">I", labels[4:8])
    if struct.unpack(">IIII", images[:16]) != (0x803, n, 28, 28) or len(images) != 16 + 784 * n or len(labels) != 8 + n:
        sys.exit(f"the files of {folder} are not MNIST's")
    return images[16:], labels[8:]


def content(folder, name):
    for path in (folder / f"{name}.gz", folder / name):
        if path.exists():
            data = path.read_bytes()
            return gzip.decompress(data) if path.suffix == ".gz" else data
    sys.exit(f"{folder} has no {name}[.gz]; fetch MNIST with `nettorrent data fetch mnist` or name its folder with --data")


def write_first(folder, part, n, pictures, labels):
    """Writes the first `n` of a part."""
    heads = {IMAGES: struct.pack(">IIII", 0x803, n, 28, 28), LABELS: struct.pack(">II", 0x801, n)}
    for kind, numbers in [(IMAGES, pictures[:784 * n]), (LABELS, labels[:n])]:
        (Path(folder) / f"{part}-{kind}").write_bytes(heads[kind] + numbers)
