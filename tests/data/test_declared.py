"""The published tables: widths, words, and that bounds are bounds."""

from __future__ import annotations

import pytest

from prismfl.data import DATASETS, declared
from prismfl.data.declared import declared_words
from prismfl.data.schema import Schema
from prismfl.nets.columns import Columns

TABLES = {
    "breast-cancer": (declared.BREAST_CANCER, 30, 30),
    "wine-cultivar": (declared.WINE_CULTIVAR, 13, 13),
    "wine-quality": (declared.WINE_QUALITY, 12, 12),
    "titanic": (declared.TITANIC, 7, 3 + 1 + 4 + 3),
    "adult": (declared.ADULT, 14, 6 + 1 + 9 + 16 + 7 + 15 + 6 + 5 + 42),
    "mushroom": (declared.MUSHROOM, 22, None),
}


@pytest.mark.parametrize("name", TABLES)
def test_columns_and_features_are_as_published(name: str) -> None:
    schema, columns, width = TABLES[name]
    assert len(schema.columns) == columns
    if width is not None:
        assert schema.width == width
    assert DATASETS[name].shape == (schema.width,)
    assert DATASETS[name].classes == schema.classes


@pytest.mark.parametrize("name", TABLES)
def test_the_words_parse_to_the_same_width(name: str) -> None:
    words = declared_words(name)
    assert words is not None
    assert Columns.parse(words).width == TABLES[name][0].width


def test_other_data_have_no_words() -> None:
    assert declared_words("mnist") is None
    assert declared_words("my.csv") is None


@pytest.mark.parametrize("schema", [t[0] for t in TABLES.values()], ids=list(TABLES))
def test_every_number_has_a_lower_and_an_upper_bound(schema: Schema) -> None:
    for column in schema.columns:
        if column.type == "numeric":
            low, high = column.bounds()
            assert low < high
        else:
            assert len(set(column.categories)) == len(column.categories) >= 2


def test_a_choice_of_two_is_binary() -> None:
    kinds = {c.name: c.type for c in declared.TITANIC.columns}
    assert (kinds["Sex"], kinds["Pclass"], kinds["Age"]) == ("binary", "categorical", "numeric")


def test_empty_cells_of_the_passenger_list_have_a_declared_value() -> None:
    missing = {c.name: c.missing for c in declared.TITANIC.columns}
    assert (missing["Age"], missing["Embarked"], missing["Fare"]) == (30, "S", None)
