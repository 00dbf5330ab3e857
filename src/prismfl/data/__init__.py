"""Data: named data sets, the user's own files, splits over sites, public images. Importing it does not import torch."""

from __future__ import annotations

from prismfl.data.datasets import DATASETS, EMBEDDED, available, data_directory, load
from prismfl.data.files import load_path
from prismfl.data.partition import partition, plot, summary
from prismfl.data.public import Public, load_public, public_names
from prismfl.data.schema import Column, Schema
from prismfl.data.schemes import Split, parse_split
from prismfl.data.spec import Dataset, Spec

__all__ = [
    "DATASETS",
    "EMBEDDED",
    "Column",
    "Dataset",
    "Public",
    "Schema",
    "Spec",
    "Split",
    "available",
    "data_directory",
    "load",
    "load_path",
    "load_public",
    "parse_split",
    "partition",
    "plot",
    "public_names",
    "summary",
]
