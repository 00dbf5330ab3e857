"""Tables for the terminal. Each takes plain dicts, the same that `--format json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from prismfl.report.editions import STAYS
from prismfl.report.words import NO_PROTECTION

SCORE_NAMES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auc": "AUC",
    "f1": "F1",
    "f1_macro": "F1, mean over classes",
    "average_precision": "average precision",
    "ece": "calibration error",
    "brier": "Brier score",
    "r2": "R2",
    "mae": "mean absolute error",
}
NO_PERCENT = ("brier", "r2", "mae")


def epsilon_words(row: Mapping[str, Any], *, mark: str = f" ({NO_PROTECTION})") -> str:
    """Epsilon for people: infinity and the words where there is no guarantee; never a blank. `mark` follows the number
    of a run whose noise was seeded. What the shown model depends on beside this run is counted in."""
    if row["guarantee"] == "nothing leaves":
        return "0 (nothing leaves)"
    own = row["epsilon"]
    total = row.get("epsilon_total", own)
    if row["guarantee"] == "none" or own is None:
        return "∞ (no DP guarantee)"
    if total is None:
        return f"∞ in all (no DP guarantee; this run {own:.3g})"
    said = f"{total:.3g} in all per {row['unit']}, this run {own:.3g}"
    if total <= own:
        said = f"{own:.3g} per {row['unit']}"
    return said + mark if is_simulated(row) else said


def is_simulated(row: Mapping[str, Any]) -> bool:
    """Whether the guarantee of a result or plan is void because its noise was seeded."""
    if row["guarantee"] in ("none", "nothing leaves"):
        return False
    return str(row["guarantee"]).startswith("simulation") or str(row.get("noise") or "").startswith("seeded")


def encoder_words(row: Mapping[str, Any]) -> str | None:
    """The public encoder of a result or setting and what it was trained on; None where there is none."""
    name = row.get("encoder")
    if not name or name in ("none", "auto"):
        return None
    return f"{name}, trained on {row['pretrained_on']}" if row.get("pretrained_on") else f"{name}, not pretrained"


def size_words(count: float) -> str:
    """A number of bytes with its unit, in steps of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def simple_table(title: str, rows: Sequence[Mapping[str, Any]], *, caption: str | None = None) -> Table:
    """A table of rows, with the keys of the first one as columns."""
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for name in rows[0] if rows else ():
        table.add_column(str(name), overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    return table


def total_words(total: Mapping[str, Any]) -> str:
    """What one's own data have paid in all, for people."""
    paid = ", ".join(
        f"{'no guarantee' if value is None else f'epsilon {value:.4g}'} per {words.partition(',')[0]}"
        for words, value in (total.get("by_unit") or {}).items()
    )
    seeded = f"; {total['seeded_releases']} of them seeded: no protection" if total.get("seeded_releases") else ""
    return f"{paid or 'nothing'} over {total.get('releases', 0)} releases{seeded}"


def result_table(result: Mapping[str, Any]) -> Table:
    """A finished run: accuracy, epsilon and guarantee, traffic, time and place."""
    accuracy = "-" if result["accuracy"] is None else f"{result['accuracy']:.2f} %{interval_words(result, 'accuracy')}"
    if result["accuracy"] is not None and result.get("own_data"):
        accuracy += f" (exact, on own records: {STAYS})"
    guarantee = NO_PROTECTION if is_simulated(result) else result["guarantee"]
    rows = {
        "method": result["method"],
        "data": f"{result['data']}, {result['split']}, {result['sites']} sites",
        **({} if _predicts_number(result) else {"accuracy": accuracy}),
        **_fitting(result),
        **_models(result),
        **_learnt(result),
        "epsilon": epsilon_words(result),
        "guarantee": f"{guarantee}; delta {result['delta']:g}, unit {result['unit']}, {result['relation']}",
        "sent up / down": f"{size_words(result['bytes_up'])} / {size_words(result['bytes_down'])}",
        "seconds": f"{result['seconds']:.1f}",
        "run": result["run_dir"],
    }
    if encoder_words(result):
        rows["public encoder"] = str(encoder_words(result))
    if result.get("ledger"):
        rows |= {"your data so far": total_words(result.get("spent_so_far") or {}), "ledger": result["ledger"]}
    return _two_columns("Run", rows)


def best_scores(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scores of the recommended model, or of the sites' own, as far as the run has measured any."""
    found = (result.get("models") or {}).get(result.get("recommended")) or result.get("scores")
    return found if isinstance(found, Mapping) else {}


def fitting_scores(scores: Mapping[str, Any]) -> list[str]:
    """The scores that say more than accuracy of such data: balanced accuracy where a class is rare, the area of two."""
    unbalanced, two = bool(scores.get("unbalanced")), len(scores.get("recall") or ()) == 2
    wanted = (["balanced_accuracy"] if unbalanced else []) + (["auc"] if two else [])
    return [name for name in wanted if scores.get(name) is not None]


def interval_words(result: Mapping[str, Any], name: str) -> str:
    """The 95 % interval of a score of the recommended model, in brackets; nothing where there is none."""
    found = (best_scores(result).get("intervals") or {}).get(name)
    return f" (95 %: {found[0]:.1f} to {found[1]:.1f})" if found else ""


def _fitting(result: Mapping[str, Any]) -> dict[str, str]:
    scores = best_scores(result)
    stays = f" ({STAYS})" if result.get("own_data") else ""
    return {
        SCORE_NAMES[name]: f"{scores[name]:.2f} %{interval_words(result, name)}{stays}"
        for name in fitting_scores(scores)
    }


def _models(result: Mapping[str, Any]) -> dict[str, str]:
    """A row for each model that the run holds, the recommended one first."""
    models, best = result.get("models") or {}, result.get("recommended")
    stays = f" ({STAYS})" if result.get("own_data") else ""
    return {
        f"model {name}": model_words(models[name]) + stays + ("; recommended" if name == best else "")
        for name in sorted(models, key=lambda name: (name != best, name))
    }


def _predicts_number(result: Mapping[str, Any]) -> bool:
    found = (result.get("tables") or {}).get("useful") or {}
    return any("r2" in scores for scores in found.values())


def _learnt(result: Mapping[str, Any]) -> dict[str, str]:
    """What models learn from a synthetic table: the scores that fit its classes, or the number that is predicted."""
    stays = f" ({STAYS})" if result.get("own_data") else ""
    found = (result.get("tables") or {}).get("useful") or {}
    return {f"{name}, on synthetic": learnt_words(scores) + stays for name, scores in found.items()}


def learnt_words(scores: Mapping[str, Any]) -> str:
    """The two scores that say most: average precision or accuracy, and the area; of a predicted number R2 and MAE."""
    if "r2" in scores:
        return ", ".join(f"{word} {_plain_number(scores[key])}" for key, word in (("r2", "R2"), ("mae", "MAE")))
    rare = bool(scores.get("unbalanced")) and scores.get("average_precision") is not None
    first = "average_precision" if rare else "accuracy"
    area = "" if scores.get("auc") is None else f", AUC {scores['auc']:.1f} %"
    return f"{SCORE_NAMES[first]} {scores[first]:.1f} %{area}"


def _plain_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def model_words(scores: Mapping[str, Any]) -> str:
    """How well a model does, in a line."""
    area = "" if scores.get("auc") is None else f", AUC {scores['auc']:.1f} %"
    return f"{scores['accuracy']:.2f} %, balanced {scores['balanced_accuracy']:.2f} %{area}"


def score_rows(scores: Mapping[str, Any], classes: Sequence[str]) -> dict[str, str]:
    """Every score of a model in words: the overall ones with their intervals, then the recall of each class."""
    positive = scores.get("positive")
    of = f" of {classes[positive]}" if isinstance(positive, int) and positive < len(classes) else ""
    intervals, rows = scores.get("intervals") or {}, {}
    for name, shown in SCORE_NAMES.items():
        if name not in scores or (name == "f1_macro" and not of):
            continue
        look, ends, unit = (".4g", ".4g", "") if name in NO_PERCENT else (".2f", ".1f", " %")
        value = "-" if scores[name] is None else f"{scores[name]:{look}}{unit}"
        if found := intervals.get(name):
            value += f" (95 %: {found[0]:{ends}} to {found[1]:{ends}})"
        rows[shown + (of if name in ("f1", "average_precision") else "")] = value
    for name, recall in zip(classes, scores.get("recall") or ()):
        rows[f"recall of {name}"] = "-" if recall is None else f"{recall:.2f} %"
    return rows


def scores_table(classes: Sequence[str], scores: Mapping[str, Any], *, records: int) -> Table:
    """How often a model is right: over all records, over classes, and class by class."""
    rows = score_rows(scores, classes)
    return _two_columns(f"Scores ({records} labelled)", rows)


def plan_table(plan: Mapping[str, Any]) -> Table:
    """What a run would cost and send, before any record is read."""
    rows = {
        "method": plan["method"],
        "epsilon, whole run": epsilon_words(plan),
        "epsilon by RDP": "∞" if plan["epsilon_rdp"] is None else f"{plan['epsilon_rdp']:.4g}",
        "epsilon, one round": "∞" if plan["epsilon_per_round"] is None else f"{plan['epsilon_per_round']:.4g}",
        "sigma": "-" if plan["sigma"] is None else f"{plan['sigma']:.4g}",
        "delta, unit, relation": f"{plan['delta']:g}, {plan['unit']}, {plan['relation']}",
        "declared records a site": str(plan["records"]),
        "rounds": str(plan["rounds"]),
        "releases": str(plan["releases"]),
        "sent up": size_words(plan["bytes_up"]),
        "cost": plan["cost"],
    }
    return _two_columns("Plan (no record was read)", rows)


def _two_columns(title: str, rows: Mapping[str, str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table
