"""The declared tables: bounds and categories as published with each data set, rounded outward to plain numbers.

Sources: the attribute descriptions of the UCI repository, and for Titanic the ranges of the passenger list. They are
constants on purpose: nothing here is computed from the records that a site holds.
"""

from __future__ import annotations

from prismfl.data.schema import Column, Schema, words


def _numeric(rows: str) -> tuple[Column, ...]:
    """Lines of `name, min, max[, integer]`."""
    columns = []
    for row in rows.strip().splitlines():
        name, low, high, *integer = (part.strip() for part in row.split(","))
        columns.append(Column(name, min=float(low), max=float(high), integer=bool(integer)))
    return tuple(columns)


def _choices(name: str, categories: str, *, missing: str | None = None) -> Column:
    names = tuple(categories.split())
    return Column(name, type="binary" if len(names) == 2 else "categorical", categories=names, missing=missing)


BREAST_CANCER = Schema(
    columns=_numeric(
        """
        mean radius, 6, 30
        mean texture, 9, 40
        mean perimeter, 40, 190
        mean area, 100, 2600
        mean smoothness, 0.05, 0.17
        mean compactness, 0, 0.35
        mean concavity, 0, 0.45
        mean concave points, 0, 0.21
        mean symmetry, 0.1, 0.31
        mean fractal dimension, 0.04, 0.1
        radius error, 0, 3
        texture error, 0, 5
        perimeter error, 0, 22
        area error, 0, 550
        smoothness error, 0, 0.04
        compactness error, 0, 0.14
        concavity error, 0, 0.4
        concave points error, 0, 0.06
        symmetry error, 0, 0.08
        fractal dimension error, 0, 0.03
        worst radius, 7, 37
        worst texture, 12, 50
        worst perimeter, 50, 260
        worst area, 180, 4300
        worst smoothness, 0.07, 0.23
        worst compactness, 0, 1.1
        worst concavity, 0, 1.3
        worst concave points, 0, 0.3
        worst symmetry, 0.15, 0.67
        worst fractal dimension, 0.05, 0.21
        """
    ),
    label="diagnosis",
    classes=("malignant", "benign"),
)

WINE_CULTIVAR = Schema(
    columns=_numeric(
        """
        alcohol, 11, 15
        malic_acid, 0.5, 6
        ash, 1.3, 3.3
        alcalinity_of_ash, 10, 30
        magnesium, 70, 165
        total_phenols, 0.9, 4
        flavanoids, 0.3, 5.1
        nonflavanoid_phenols, 0.1, 0.7
        proanthocyanins, 0.4, 3.6
        color_intensity, 1, 13
        hue, 0.4, 1.8
        od280/od315_of_diluted_wines, 1.2, 4
        proline, 270, 1700, integer
        """
    ),
    label="cultivar",
    classes=("first", "second", "third"),
)

WINE_QUALITY = Schema(
    columns=_numeric(
        """
        fixed acidity, 3, 16
        volatile acidity, 0, 1.6
        citric acid, 0, 1.7
        residual sugar, 0, 70
        chlorides, 0, 0.7
        free sulfur dioxide, 0, 300
        total sulfur dioxide, 0, 450
        density, 0.98, 1.04
        pH, 2.7, 4.1
        sulphates, 0.2, 2
        alcohol, 8, 15
        quality, 0, 10, integer
        """
    ),
    label="colour",
    classes=("red", "white"),
)

TITANIC = Schema(
    columns=(
        _choices("Pclass", "1 2 3"),
        _choices("Sex", "female male"),
        Column("Age", min=0, max=80, missing=30),
        *_numeric("SibSp, 0, 8, integer\nParch, 0, 6, integer\nFare, 0, 520"),
        _choices("Embarked", "C Q S", missing="S"),
    ),
    label="Survived",
    classes=("died", "survived"),
)

ADULT = Schema(
    columns=(
        *_numeric("age, 17, 90, integer"),
        _choices(
            "workclass",
            "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked ?",
        ),
        *_numeric("fnlwgt, 0, 1500000, integer"),
        _choices(
            "education",
            "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th "
            "10th Doctorate 5th-6th Preschool",
        ),
        *_numeric("education-num, 1, 16, integer"),
        _choices(
            "marital-status",
            "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse",
        ),
        _choices(
            "occupation",
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
            "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
            "Armed-Forces ?",
        ),
        _choices("relationship", "Wife Own-child Husband Not-in-family Other-relative Unmarried"),
        _choices("race", "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
        _choices("sex", "Female Male"),
        *_numeric("capital-gain, 0, 99999, integer\ncapital-loss, 0, 4400, integer\nhours-per-week, 1, 99, integer"),
        _choices(
            "native-country",
            "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece "
            "South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
            "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
            "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands ?",
        ),
    ),
    label="income",
    classes=("<=50K", ">50K"),
)

MUSHROOM = Schema(
    columns=(
        _choices("cap-shape", "b c x f k s"),
        _choices("cap-surface", "f g y s"),
        _choices("cap-color", "n b c g r p u e w y"),
        _choices("bruises", "t f"),
        _choices("odor", "a l c y f m n p s"),
        _choices("gill-attachment", "a d f n"),
        _choices("gill-spacing", "c w d"),
        _choices("gill-size", "b n"),
        _choices("gill-color", "k n b h g r o p u e w y"),
        _choices("stalk-shape", "e t"),
        _choices("stalk-root", "b c u e z r ?"),
        _choices("stalk-surface-above-ring", "f y k s"),
        _choices("stalk-surface-below-ring", "f y k s"),
        _choices("stalk-color-above-ring", "n b c g o p e w y"),
        _choices("stalk-color-below-ring", "n b c g o p e w y"),
        _choices("veil-type", "p u"),
        _choices("veil-color", "n o w y"),
        _choices("ring-number", "n o t"),
        _choices("ring-type", "c e f l n p s z"),
        _choices("spore-print-color", "k n b h r o u w y"),
        _choices("population", "a c n s v y"),
        _choices("habitat", "g l m p u w d"),
    ),
    label="class",
    classes=("edible", "poisonous"),
)


def declared_schema(data: str) -> Schema | None:
    """The published declaration of a named table; None for other data."""
    known = {
        "breast-cancer": BREAST_CANCER,
        "wine-cultivar": WINE_CULTIVAR,
        "wine-quality": WINE_QUALITY,
        "titanic": TITANIC,
        "adult": ADULT,
        "mushroom": MUSHROOM,
    }
    return known.get(data)


def declared_words(data: str) -> tuple[str, ...] | None:
    """The columns of a named table, from its published declaration; None for other data."""
    schema = declared_schema(data)
    return None if schema is None else words(schema)
