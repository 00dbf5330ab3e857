"""A method of your own in 30 lines: noisy sums of the images of each class leave a site, once."""

import tempfile
from pathlib import Path

import torch
from torch.nn.functional import normalize

import prismfl
from prismfl.core.method import DPSettings
from prismfl.core.payloads import Statistics


class Config(DPSettings):
    """`sigma` is solved from epsilon, over the whole run."""

    bound: float = 5.0  # an image counts for at most this norm


def client(cfg, state, site, key):
    """At a site: hand a function to the door, which clips, sums, adds noise and charges."""
    classes = len(site.task.classes)

    def rows(x, y):
        own = (y[:, None] == torch.arange(classes)).float()
        return (own[:, :, None] * x.flatten(1)[:, None, :]).flatten(1)

    sums = site.records.noisy_sum(rows, bound=cfg.bound, sigma=cfg.noise)
    return {"sums": Statistics({"sums": sums.reshape(classes, -1)})}, {}  # what leaves, what the site remembers


def server(cfg, task, state, inbox, key):
    return {"model": Statistics({"sums": sum(items["sums"].tensors["sums"] for items in inbox.values())})}


def predict(cfg, task, items, x):
    """The class whose mean direction is nearest."""
    means = normalize(items["model"].tensors["sums"])
    return normalize(x.flatten(1)) @ normalize(means - means.mean(0)).T


METHOD = prismfl.Method(
    name="class-sums",
    summary="nearest noisy class sum",
    paper="",
    settings=Config,
    leaves={"sums": Statistics},
    guarantee="site",
    init=lambda cfg, task, key: {},
    client=client,
    server=server,
    predict=predict,
    plan=lambda cfg, task: task.gaussian(cfg.noise),  # must equal what the door has metered
    shapes=lambda cfg, task: {"sums": {"sums": ("float32", (len(task.classes), torch.Size(task.shape).numel()))}},
)

if __name__ == "__main__":  # in a module of yours, it is also `prismfl run --method own_method:METHOD`
    plan = prismfl.plan(METHOD, data="digits", sites=3, epsilon=1.0)
    print(f"planned: {plan.cost}")
    with tempfile.TemporaryDirectory() as folder:
        result = prismfl.run(METHOD, data="digits", sites=3, epsilon=1.0, out=str(Path(folder) / "run"))
    print(f"epsilon {result.epsilon:.3f}, accuracy {result.accuracy:.1f} %, sent {result.bytes_up / 1000:.1f} kB")
