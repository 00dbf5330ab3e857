"""Dataset condensation: images fitted to exact gradients, class by class, without a guarantee."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from prismfl.errors import BoundaryError, UserError
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.laws.world import some_records
from tests.methods.hand import settings
from tests.methods.tiny import answer, job_of, nobody, served


def test_images_leave_with_the_declared_shape_and_no_guarantee() -> None:
    told = answer("dsc", images=2)
    assert told.shapes() == told.job.shapes
    assert told.cost == Cost.non_private() == job_of("dsc").plan()
    assert METHODS["dsc"].guarantee is None


def test_only_the_images_of_classes_that_are_there_are_moved() -> None:
    """A class without records has no gradient to match: its images stay the noise they began as."""
    two = answer("dsc", records=some_records(20, seed=0, classes=(0, 1)), images=2).leaves["images"].tensors["x"]
    still = answer("dsc", image_lr=1e-12, images=2).leaves["images"].tensors["x"]
    assert torch.equal(two[4:], still[4:])
    assert float((two[:4] - still[:4]).abs().max()) > 1e-4


def test_more_records_of_a_class_than_the_batch_are_drawn_from() -> None:
    one, two = (answer("dsc", batch=b).leaves["images"].digest for b in (2, 20))
    assert one != two


def test_the_server_trains_a_model_on_the_images() -> None:
    items = served("dsc", answer("dsc"))
    assert items["model"].shapes() == METHODS["fedavg"].shapes(settings("fedavg"), job_of("dsc").task)["model"]
    assert items["synthetic"].tensors["y"].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_place_without_records_is_refused() -> None:
    with pytest.raises(UserError, match=r"^site-0 has no records; nothing was sent\.$"):
        answer("dsc", records=nobody())


def test_images_that_run_away_are_not_sent() -> None:
    with pytest.raises(BoundaryError, match=r"are not finite at image_lr 1e\+38; nothing was sent\. Use a smaller"):
        answer("dsc", image_lr=1e38)


@pytest.mark.parametrize("bad", [{"sigma": 1.0}, {"batch": 0}, {"rounds": 2}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings("dsc", **bad)
