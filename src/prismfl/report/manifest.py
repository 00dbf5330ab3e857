"""What leaves a site, for every method: the table that `prismfl leaves` prints and the docs carry."""

from __future__ import annotations

from prismfl.methods import METHODS


def manifest() -> list[dict[str, str]]:
    """One row a method, in the words a privacy officer asks for."""
    rows = []
    for method in METHODS.values():
        items = ", ".join(f"{name} ({kind.kind})" for name, kind in method.leaves.items()) or "nothing"
        rounds = method.settings.model_fields["rounds"].default
        rows.append(
            {
                "method": method.name,
                "what leaves": items,
                "how often": "once" if rounds == 1 else "every round",
                "guarantee": _guarantee(method.guarantee, bool(method.leaves)),
            }
        )
    return rows


def _guarantee(guarantee: str | None, sends: bool) -> str:
    if not sends:
        return "nothing leaves: epsilon 0"
    if guarantee is None:
        return "no DP guarantee: epsilon infinity"
    if guarantee == "client":
        return "DP at the hub; unit client; none towards the hub"
    return "DP at the site; unit record (or a declared column)"


def manifest_page() -> str:
    """`docs/reference/what-leaves-the-site.md`."""
    rows = manifest()
    names = list(rows[0])
    looks = [f"`{method.name}`" for method in METHODS.values() if method.takes_encoder]
    lines = [
        "# What leaves the site",
        "",
        "Generated from the methods' manifests by `prismfl leaves --format markdown`; a test keeps it up to date.",
        "",
        "| " + " | ".join(names) + " |",
        "|" + "---|" * len(names),
        *("| " + " | ".join(row.values()) + " |" for row in rows),
        "",
        "Beside the items themselves a release carries public numbers only: run, site, round, cost, and where the",
        "noise came from. Shapes and sizes are configuration. Nothing else crosses.",
        "",
        f"{', '.join(looks)} may look at images through a public encoder, which the run",
        "names and every side has for itself: nothing of it crosses but its name and digest, and no record teaches it.",
        "Certificates, reports and tables print `public encoder: NAME, trained on ...`.",
        "",
    ]
    return "\n".join(lines)
