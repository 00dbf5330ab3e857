import pytest
import torch

from prismfl.attacks.gan_attack import Plan, dishonest, fake_images
from prismfl.boundary import PrivateRecords, Records
from prismfl.data import load
from prismfl.errors import UserError
from prismfl.method import Method, Site, State, Task
from prismfl.methods import METHODS
from prismfl.models.classifier import build
from prismfl.rng import Key

KEY = Key.seed(5)
TASK = Task("digits", (1, 8, 8), tuple("0123456789"), ("honest", "bad"), 300, "lenet:8")
PLAN = Plan(site="bad", target=0, wrong=9)


def play(method: Method, rounds: int, **settings) -> tuple[State, dict]:
    """The honest site holds class 0, which the other has never seen."""
    data = load("digits")
    zero = data.y_train == 0
    parts = {
        "honest": Records(torch.cat([data.x_train[zero], data.x_train[~zero][:100]]),
                          torch.cat([data.y_train[zero], data.y_train[~zero][:100]])),
        "bad": Records(data.x_train[~zero][100:400], data.y_train[~zero][100:400]),
    }  # fmt: skip
    cfg = method.settings(rounds=rounds, batch=32, **settings)
    state, memory = State(0, dict(method.init(cfg, TASK, KEY))), {}
    for r in range(rounds):
        inbox = {}
        for name, records in parts.items():
            door = PrivateRecords(records, declared=300, classes=10, noise=KEY.child("noise", name, r).noise())
            site = Site(name, door, memory.get(name, {}), TASK)
            inbox[name], memory[name] = method.client(cfg, state, site, KEY.child("client", name, r))
        state = State(r + 1, dict(method.server(cfg, TASK, state, inbox, KEY)))
    return state, memory


def test_a_dishonest_site_draws_a_class_it_never_saw():
    state, memory = play(dishonest(METHODS["fedsgd-gauss"], PLAN), 60, scale=0.0)
    assert set(memory["bad"]) == {"generator"}
    assert memory["honest"] == {}
    images = fake_images(TASK.shape, memory["bad"], 16, key=KEY)
    assert images.shape == (16, 1, 8, 8)
    data = load("digits")
    means = torch.stack([data.x_test[data.y_test == c].mean(0) for c in range(10)])
    centred = means - means.mean(0)
    likeness = ((images.mean(0) - means.mean(0)) * centred).flatten(1).sum(1) / centred.flatten(1).norm(dim=1)
    assert int(likeness.argmax()) == 0
    classifier, _ = build(TASK.model, TASK.shape, 10, key=KEY)
    zeros = data.x_test[data.y_test == 0]
    learned = classifier.logits(state.items["model"].to("cpu"), zeros).argmax(1)
    assert float((learned == 0).float().mean()) > 0.8


def test_honest_sites_do_as_always():
    method = METHODS["fedsgd-gauss"]
    bad, cfg = dishonest(method, PLAN), method.settings(rounds=1, batch=8, scale=0.0)
    records = Records(torch.rand(20, 1, 8, 8), torch.zeros(20, dtype=torch.int64))
    state = State(0, dict(method.init(cfg, TASK, KEY)))
    sent = []
    for m in (method, bad):
        door = PrivateRecords(records, declared=20, classes=10, noise=KEY.noise())
        sent.append(m.client(cfg, state, Site("honest", door, {}, TASK), KEY)[0]["gradient"].digest)
    assert sent[0] == sent[1]


def test_methods_that_share_no_gradient_are_refused():
    with pytest.raises(UserError, match="does not apply"):
        dishonest(METHODS["local-only"], PLAN)
