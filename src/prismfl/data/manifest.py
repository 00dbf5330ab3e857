"""The files behind each data set, relative to the data folder, with their SHA-256 sums, and reading them checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

from prismfl.errors import UserError

FILES: dict[str, dict[str, str]] = {
    "mnist": {
        "mnist/train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "mnist/train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "mnist/t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "mnist/t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    "fashion-mnist": {
        "fashion-mnist/train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "fashion-mnist/train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "fashion-mnist/t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "fashion-mnist/t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
    "cifar10": {
        "cifar10/data_batch_1.webp": "0c540445580e2b4751a4fb5e79175f3eced765d47d186c46cf6aaa7a076c47d9",
        "cifar10/data_batch_2.webp": "ecd97fbddf53a95c7a487a46490001fbae20af0d14e0978cf2a8c74001ef5eb5",
        "cifar10/data_batch_3.webp": "577efcbfc9a4ea051e4f915841300a1c1943948d918318615797528bd1931ae3",
        "cifar10/data_batch_4.webp": "a362cd3478100abaef253b26a1c6c0979ac43379b30b03c5c774900ed8f3025c",
        "cifar10/data_batch_5.webp": "dca43ff04bd60b6081d36b131a960c0ab9d7a4c2f6be4dc305f4248586327eb4",
        "cifar10/test_batch.webp": "ff9de491fc23a41297e1e58c42a552efb04f949758a185cc7541e5a51cf1c35f",
        "cifar10/labels.npz": "daea3ab97fbc1f0c401ace81f3b7eb7127998865bc1bd36716655a06fdf75516",
    },
    "celeba-hair": {
        "public/celeba64.jpg": "c6fa031d35009f7af1bd44933b682482c9523669c77c27ec1f48d30de7f81acf",
        "public/celeba64_labels.npz": "a21645943503db37f66028f5ac48eb98ee913f50f045651162e3dd43c2cfffb1",
    },
    "pneumonia": {
        "medical/pneumoniamnist.npz": "ce8250bf5debc3c389b89affcc1d9feac579b26e875a848301e9f937bb0c2eee",
    },
    "adult": {
        "tabular/adult.data.gz": "c7a2b4716a97f930123e0baf879188d701e798172631a654fc703d4b082907f3",
        "tabular/adult.test.gz": "8a2c1bffa6e7ce5abfa43881ae5e87c4311ebc2b3cd526c9c40a43f19f06f799",
    },
    "titanic": {
        "tabular/titanic.csv": "4a437fde05fe5264e1701a7387ac6fb75393772ba38bb2c9c566405af5af4bd7",
    },
    "mushroom": {
        "tabular/agaricus-lepiota.data": "e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e",
    },
    "wine-quality": {
        "tabular/winequality-red.csv": "4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
        "tabular/winequality-white.csv": "76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836",
    },
    "xray-reports": {
        "text/NLMCXR_reports.tgz": "8fb6de7eec73d8c3665067ad4bb003ccd57f971ae316d2642e1627ac7268667a",
    },
    "pneumonia-reports": {
        "medical/pneumoniamnist.npz": "ce8250bf5debc3c389b89affcc1d9feac579b26e875a848301e9f937bb0c2eee",
        "text/NLMCXR_reports.tgz": "8fb6de7eec73d8c3665067ad4bb003ccd57f971ae316d2642e1627ac7268667a",
    },
    "medical-abstracts": {
        "text/medical_tc_test.csv.gz": "dbcfb04cb006bbd50dee28ddde1806ab4651bb14cd13616d69995ad327d01c35",
    },
    "kannada": {
        "public/kannada-mnist/X_kannada_MNIST_test-idx3-ubyte.gz": (
            "4628f3fa7b1d32137449dd356be4601da0c28c420b79f1b745a5134504ca35ca"
        ),
    },
    "omniglot": {
        "public/omniglot28.npz": "6262b5d82d4320c531ce1acf7d31ae74ff8825a075d6ec98d92f8e6a939d21b1",
    },
    "tiny-imagenet": {
        "public/tinyimagenet64.jpg": "16ff1a6f6f8dbe7b25fb92e233052eff5ac120ffc70dc30215f42d8695ebaea4",
    },
}
_PUBLIC_ONLY = ("kannada", "omniglot", "tiny-imagenet")


def read_checked(folder: Path | None, name: str, path: str) -> bytes:
    """The bytes of one file of data set `name`, refused unless they are exactly the expected ones."""
    if folder is None:
        raise UserError(
            f"Data '{name}' needs {path}, but no data folder is set; set PRISMFL_DATA or --data-dir to the folder "
            f"that holds it, or use {_instead(path)}, which needs no file."
        )
    try:
        content = (folder / path).read_bytes()
    except OSError as error:
        raise UserError(
            f"Expected {folder / path} for data '{name}', but it cannot be read ({error.strerror}); set PRISMFL_DATA "
            f"or --data-dir to the folder that holds {path}, or use {_instead(path)}, which needs no file."
        ) from None
    expected = FILES[name][path]
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise UserError(
            f"Expected SHA-256 {expected[:16]}... for {folder / path}, got {found[:16]}...; the file is damaged or "
            f"another version: fetch it again, or use {_instead(path)}, which needs no file."
        )
    return content


def _instead(path: str) -> str:
    """The nearest embedded thing."""
    if path in (p for name in _PUBLIC_ONLY for p in FILES[name]):
        return "procedural public images"
    return "--data breast-cancer" if path.startswith("tabular/") else "--data mnist-5k"
