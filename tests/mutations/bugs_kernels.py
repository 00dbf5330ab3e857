"""Kernels that measure one thing and add another; each is seen by a case of tests/kernels."""

from __future__ import annotations

from prismfl.core.door import PrivateRecords
from prismfl.kernels import clipped_gradients, layer_gradients, per_record
from prismfl.privacy import mechanisms
from tests.core import test_door as door_tests
from tests.kernels import test_alone as alone
from tests.kernels import test_clip_holds as holds
from tests.kernels import test_equal as equal
from tests.mutations.planting import Bug, Check


def plain(test: object, *arguments: object) -> Check:
    """A test that needs no fixture."""
    return lambda folder, monkeypatch: test(*arguments)  # type: ignore[operator]


def worst(case: str) -> Check:
    return plain(holds.test_the_worst_cases_count_for_the_clip_and_no_more, case)


BUGS = [
    Bug(
        "a convolution measured by other numbers than it adds",
        layer_gradients.Kernels,
        "squared_norms",
        "squared_norms(self.rows.flatten(1))",
        "squared_norms(self.rows.flatten(1).round(decimals=-3))",
        worst("hot pixel, large picture"),
    ),
    Bug(
        "one long float32 sum of squares",
        layer_gradients,
        "squared_norms",
        "rows.shape[1] // STRETCH * STRETCH",
        "0",
        plain(holds.test_a_norm_of_very_many_equal_numbers),
    ),
    Bug(
        "moments weighted in float32",
        mechanisms,
        "clipped_moments",
        "weights = clip_factors(norms, bound) * share.to(norms)",
        "weights = (clip_factors(norms, bound) * share.to(norms)).float().double()",
        plain(holds.test_moments_count_for_the_bound_and_no_more),
    ),
    Bug(
        "clips that float32 cannot square taken by the kernels",
        clipped_gradients,
        "chosen",
        "not (SMALL <= clip <= LARGE or math.isinf(clip))",
        "False",
        plain(holds.test_a_clip_below_what_float32_can_square, 1e-28),
    ),
    Bug(
        "long sums in float32",
        per_record,
        "clipped_sum",
        "total[name] += value",
        "total[name] = (total[name] + value).float().double()",
        plain(holds.test_sums_of_many_equal_records_stay_exact),
    ),
    Bug(
        "gradients added in float32",
        layer_gradients,
        "weighted_sum",
        "some @ own.double()",
        "some.float() @ own",
        plain(alone.test_long_sums_do_not_depend_on_the_order),
    ),
    Bug(
        "a layer seen several times measured draw by draw",
        layer_gradients.Outers,
        "squared_norms",
        "products.sum((1, 2))",
        "products.diagonal(dim1=1, dim2=2).sum(1)",
        plain(equal.test_norms_and_sums_of_layers_seen_several_times),
    ),
    Bug(
        "a class's second moment among another's",
        mechanisms,
        "clipped_moments",
        "(y == c)",
        "(y != c)",
        plain(door_tests.moments_of_classes_apart),
    ),
    Bug(
        "a linear layer as one product of the batch",
        per_record,
        "_linear",
        "row_by_row.batched(",
        "F.linear(",
        equal.every_linear_layer_goes_row_by_row,
    ),
    Bug(
        "linear layers under vmap as one product of the batch",
        clipped_gradients,
        "clipped_gradient_sum",
        "row_by_row.RowByRow()",
        "nullcontext()",
        equal.every_linear_layer_goes_row_by_row,
    ),
    Bug(
        "units summed in float32",
        clipped_gradients,
        "_unit_gradients",
        "s / sizes.to(s.dtype)",
        "s.float() / sizes.to(s.dtype)",
        plain(holds.test_a_unit_whose_sum_leaves_float32_still_counts_for_the_clip),
    ),
    Bug(
        "rows of a sum as one product of the batch",
        PrivateRecords,
        "_rows_in_chunks",
        "with RowByRow():",
        "if True:",
        plain(alone.test_rows_of_a_sum_hang_on_no_others_place, "zero_sum", "even", 5),
    ),
    Bug(
        "reference not demanded",
        PrivateRecords,
        "noisy_gradient",
        "reference=self.reference",
        "reference=False",
        equal.no_kernel_behind_a_door_that_demands_the_reference,
    ),
]
