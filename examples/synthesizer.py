"""A synthesizer on your own arrays: fit once, sample as often as you like."""

import tempfile

from sklearn.datasets import load_digits

import prismfl

digits = load_digits()
images, labels = (digits.images / 16.0), digits.target  # (n, 8, 8) in [0, 1], and whole numbers from 0

# Your own data count on your one lasting ledger: leave `ledger` out.
with tempfile.TemporaryDirectory() as folder:
    quick = {"networks": 4, "rank": 32, "covariance": 32, "steps": 40}
    # Declared and public: the classes, and a rounded number of records.
    synthesizer = prismfl.create("prism", epsilon=2.0, classes=10, records=1500, ledger=folder, **quick)
    synthesizer.fit(images, labels)  # the one release
    certificate = synthesizer.certificate()

x, y = synthesizer.sample(20)  # post-processing of the release: free
print(f"{len(x)} images of shape {x.shape[1:]}, labels {sorted(set(y.tolist()))}")
print(f"epsilon {certificate['epsilon']:.3f} per {certificate['unit']}, noise from the {certificate['noise']}")
print(f"in all so far: epsilon {certificate['total_so_far']['epsilon']:.3f}")
print(f"not protected: {certificate['not_protected']}")
