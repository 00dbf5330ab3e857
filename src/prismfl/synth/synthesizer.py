"""One data holder, no federation: fit a synthesizer on private records, then sample from it as often as you like.

`Synthesizer(epsilon=1.0).fit(X, y).sample(100)` on images, or on an encoded table with its declared columns. All ways
come through `fit_records`, and from there through `single.release`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl.core.once import Holder
from prismfl.core.release import Release
from prismfl.core.task import Task
from prismfl.data.parts import Parts
from prismfl.data.schema import Schema
from prismfl.errors import UserError
from prismfl.nets.encoders.base import Encoder
from prismfl.rng import Key
from prismfl.synth.arrays import read_arrays
from prismfl.synth.frames import Framed, is_frame, own_settings, read_frame, schema_of
from prismfl.synth.labels import UNDECLARED, class_names, numbered
from prismfl.synth.single import Fitted, Options, release
from prismfl.synth.ways import WAYS, table_method


class Synthesizer:
    """`fit` makes the one differentially private release; `sample` is post-processing and costs nothing.

    `method` is "prism" for images and "ddp-vae" for arrays of a table unless it is said; with a `schema` (a file, its
    content, or a `Schema`) frames are fitted and sampled, by "dp-marginals" where the extra `tables` is installed.
    `settings` are the method's own, and those that are not given are chosen on public data where the method can
    (`tuning`: "auto", or "fixed" for the plain defaults). `records` is a public number of records, rounded; a table
    needs it. `classes` declares the classes, by number or by name; without it they are read off the labels and
    count as public. `public` are images that may be known (a name, a folder or a tensor), for methods that need
    them; `encoder` is the public encoder that images are looked at through, by name or itself. With a `seed` the
    noise can be recomputed (a simulation: no protection); without one it comes from the operating system. Every fit
    is charged to the user's one lasting ledger, or to the one in the folder `ledger`, and refused beyond `cap`.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        method: str | None = None,
        public: str | torch.Tensor | None = None,
        public_count: int = 2000,
        data_dir: str | None = None,
        encoder: str | Encoder | None = None,
        tuning: str | None = None,
        records: int | None = None,
        classes: Sequence[str] | int | None = None,
        seed: int | None = None,
        ledger: str | Path | None = None,
        cap: float | None = None,
        schema: Schema | Mapping[str, Any] | str | Path | None = None,
        public_text: str | None = None,
        **settings: Any,
    ) -> None:
        if method is not None and method not in WAYS:
            raise UserError(
                f"Unknown synthesizer '{method}'; for images there is 'prism', for tables 'dp-marginals' and 'ddp-vae'."
            )
        self.schema = None if schema is None else schema_of(schema)
        if self.schema is not None:
            method = method or table_method()
            settings = {**own_settings(method, self.schema), **settings}
            records, classes = records or self.schema.train_size, classes or self.schema.classes
        place = None if ledger is None else Path(ledger)
        self.method, self.classes = method, classes
        self.options = Options(
            epsilon,
            delta,
            public,
            public_count,
            data_dir,
            encoder,
            tuning,
            records,
            seed,
            place,
            cap,
            settings,
            public_text,
        )
        self.options.check()
        self._fitted: Fitted | None = None
        self._text = False
        self._framed: Framed | None = None
        if method is not None:
            self.options.settings_of(WAYS[method])

    def fit(self, X: Any, y: Any = None, unit: Any = None, *, name: str | None = None) -> Synthesizer:
        """Release images (n, h, w) or (n, c, h, w), bytes or in [0, 1], an encoded table (n, columns), or a frame of
        the declared schema (of pandas or polars, or a mapping of columns), its label among its columns.

        Labels `y` are whole numbers from 0, or names of classes; a table without them gets one generator. `unit` is the
        id of the person behind each record, the same in every fit: then people are protected, not records. `name`
        declares the data on the ledger, which knows their records under any name.
        """
        if self.schema is not None:
            if y is not None or unit is not None or not is_frame(X):
                raise UserError(
                    "With a schema, fit takes one frame with the label and the unit in it, and nothing else."
                )
            holder, framed = read_frame(X, self.schema, name=name)
            self._fit(holder, self.schema.classes, unit=self.schema.unit or "record")
            self._framed = framed
            return self
        if y is None and self.classes is not None and len(class_names(self.classes)) > 1:
            raise UserError(f"Expected labels for {len(class_names(self.classes))} classes, got none.")
        records, prints, labels = read_arrays(X, y, unit, code=lambda found: numbered(found, self.classes))
        warned = (UNDECLARED,) if y is not None and self.classes is None else ()
        holder, people = Holder(records, prints, name), "record" if unit is None else "unit"
        self._fit(holder, labels.names, unit=people, warnings=warned)
        self._text = labels.text
        return self

    def fit_records(
        self, holder: Holder, *, data: str | None = None, unit: str = "record", parts: Parts | None = None
    ) -> Synthesizer:
        """The same for records that a reader has found, with the names that they and their unit are declared by, and
        what lies where in a record of several `parts`."""
        names = numbered(holder.records.y.numpy(), self.classes).names
        return self._fit(holder, names, data=data, unit=unit, **({} if parts is None else {"parts": parts}))

    def _fit(self, holder: Holder, classes: tuple[str, ...], **declared: Any) -> Synthesizer:
        way = WAYS[self.method or ("prism" if holder.records.x.dim() == 4 else "ddp-vae")]
        self._fitted, self._text = release(self.options, way, holder, classes=classes, **declared), False
        self._framed = None
        return self

    def sample(self, n: int, *, seed: int | None = 0) -> Any:
        """`n` synthetic images as bytes (n, c, h, w), classes in turn, or about `n` encoded rows; and their labels.
        Where a frame was fitted, a frame like it.

        The same seed gives the same records; None draws anew. Labels are numbers, or names where names were fitted.
        """
        fitted = self._found
        if n < 1:
            raise UserError(f"Expected n >= 1, got {n}.")
        key = Key.from_os() if seed is None else Key.seed(seed)
        draw = fitted.way.draw
        assert draw is not None
        framed = self._framed
        count = n if framed is None else framed.drawn(n)
        x, y = draw(fitted.settings, fitted.task, fitted.made.release.items, count, key)
        if framed is not None:
            return framed.frame(x, y, n, key)
        return x.numpy(), np.array(fitted.task.classes)[y.numpy()] if self._text else y.numpy()

    def certificate(self) -> dict[str, Any]:
        """The promise and how it is kept, for whoever receives the records: declared facts, and what was released."""
        return self._found.certificate()

    @property
    def release(self) -> Release:
        """What left: the noisy statistics, or the decoders."""
        return self._found.made.release

    @property
    def ledger_path(self) -> Path:
        """The ledger that the release was charged to."""
        return self._found.made.ledger

    @property
    def settings(self) -> Any:
        """The method's settings, with the noise that meets epsilon."""
        return self._found.settings

    @property
    def task(self) -> Task:
        """The public facts of the release."""
        return self._found.task

    @property
    def _found(self) -> Fitted:
        if self._fitted is None:
            raise UserError("This synthesizer has not been fitted; call fit(X, y) first.")
        return self._fitted
