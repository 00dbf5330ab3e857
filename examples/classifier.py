"""A scikit-learn classifier whose fit is one differentially private release: on a table, and on images."""

import tempfile

from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from prismfl import PrismClassifier

# Your own data count on your one lasting ledger: leave `ledger` out.
with tempfile.TemporaryDirectory() as folder:
    cells = load_breast_cancer()
    X = cells.data[:, :10]  # means of ten measurements of cell nuclei
    y = cells.target_names[cells.target]  # labels may be text
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    # Declared and public. Yours come from what is known of such measurements, never from the records.
    lowest = [5.0, 5.0, 40.0, 100.0, 0.05, 0.0, 0.0, 0.0, 0.1, 0.04]
    highest = [25.0, 35.0, 170.0, 2000.0, 0.15, 0.3, 0.4, 0.2, 0.3, 0.1]
    table = PrismClassifier(
        epsilon=1.0, bounds=(lowest, highest), classes=["benign", "malignant"], records=400, ledger=folder
    )
    table.fit(X_train, y_train)  # the one release
    print(f"table: accuracy {table.score(X_test, y_test):.2f} at epsilon {table.certificate()['epsilon']:.3f}")
    (chances,) = table.predict_proba(X_test[:1])
    print("the first:", ", ".join(f"{name} {chance:.2f}" for name, chance in zip(table.classes_, chances)))

    digits = load_digits()
    X_train, X_test, y_train, y_test = train_test_split(
        digits.images / 16.0, digits.target, test_size=0.3, random_state=0
    )
    quick = {"networks": 2, "rank": 48, "covariance": 48}
    images = PrismClassifier(epsilon=3.0, model="head", classes=10, records=1300, ledger=folder, settings=quick)
    images.fit(X_train, y_train)
    print(f"images, {images.model_}: accuracy {images.score(X_test, y_test):.2f}")
    images.use("linear")  # another model of the same release: free
    print(f"images, {images.model_}: accuracy {images.score(X_test, y_test):.2f}")
    print(f"noise from the {images.certificate()['noise']}; warnings: {images.certificate()['warnings']}")
