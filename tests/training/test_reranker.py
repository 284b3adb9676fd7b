from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import losses

import foils
from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.runtime.errors import UnknownNameError
from foils.training.data import training_set
from foils.training.fit import train_model
from foils.training.losses import make_loss
from foils.training.models import load_trainable, switch_off_dropout
from foils.training.reranker import (
    RERANKER_LOSSES,
    drawn,
    reranker_loss,
    reranker_set,
    targets_of,
)
from foils.training.settings import TARGETS, TrainSettings
from rated_rows import with_positives
from refusals import refused
from train_models import (
    cross_encoder,
    made_up,
    resumed_exactly,
    rows_of,
    second_gradients,
    static_model,
    table,
)

BASE = TrainSettings(loss="hybrid", batch_size=8, epochs=2, learning_rate=0.01, max_length=32)
LISTS, UNWEIGHTED = rows_of("lists"), rows_of("lists", without="weight")


@pytest.fixture
def model(tmp_path):
    return cross_encoder(tmp_path / "model").eval()


def loss_of(name, model, data):
    """The loss of the first rows of a data set, without training."""
    kind = reranker_loss(name)
    columns = list(reranker_set(data, kind)[:8].values())
    return kind.make(model)(columns[:-1], [torch.tensor(label) for label in columns[-1]])


@pytest.mark.parametrize("name", RERANKER_LOSSES)
def test_every_loss_heeds_weights(name, model):
    assert loss_of(name, model, LISTS).item() != pytest.approx(loss_of(name, model, UNWEIGHTED).item(), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("regression", losses.MSELoss), ("binary", losses.BinaryCrossEntropyLoss), ("listnet", losses.ListNetLoss),
    ],
)  # fmt: skip
def test_without_weights_a_loss_is_that_of_sentence_transformers(name, peer, model):
    columns = list(reranker_set(UNWEIGHTED, reranker_loss(name))[:8].values())
    labels = [torch.tensor(label)[0] for label in columns[-1]]
    expected = peer(model)(columns[:-1], torch.cat(labels) if reranker_loss(name).pointwise else labels)
    assert loss_of(name, model, UNWEIGHTED).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_weight_counts_as_so_many_documents(model):
    once = torch.tensor([[1.0, 0.0, 0.0], [1.0, 3.0, 1.0], [0.0] * 3])
    thrice = torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0], [1.0] * 5, [0.0] * 5])
    loss = reranker_loss("listnet").make(model)
    few = loss([["ba be"], [["ba", "ce ci", "da"]]], [once])
    many = loss([["ba be"], [["ba", "ce ci", "ce ci", "ce ci", "da"]]], [thrice])
    assert few.item() == pytest.approx(many.item(), rel=1e-5)
    for name in ("regression", "binary"):
        loss = reranker_loss(name).make(model)
        two, one = (torch.tensor([[0.7], [weight], [0]]) for weight in (2.0, 1.0))
        first = torch.tensor([[0.3], [1.0], [0]])
        few = loss([["ba", "ba"], ["be", "ce ci"]], [first, two])
        many = loss([["ba"] * 3, ["be", "ce ci", "ce ci"]], [first, one, one])
        assert few.item() * 2 == pytest.approx(many.item() * 3, rel=1e-5)


@pytest.mark.parametrize(
    "changed",
    [
        {"alpha": 0.9},
        {"temperature": 0.2},
        {"curriculum": True},
        {"mixing": "scheduled"},
        {"mixing": "uncertainty"},
        {"mixing": "gradnorm"},
        {"learn_temperature": True},
        {"prior": 0.2},
        {"concentration": 1.0},
    ],
)
def test_every_setting_of_the_hybrid_changes_the_gradients(changed, model):
    found = [
        second_gradients(reranker_loss("hybrid", {"temperature": 0.05, **settings}).make(model), *lists_of("hybrid"))
        for settings in ({}, changed)
    ]
    assert len(found[0]) != len(found[1]) or not torch.allclose(*found)


def test_the_hybrid_equals_plain_loops(model):
    inputs, labels = lists_of("hybrid")
    each = []
    for s, (ratings, own, _) in zip(scored(model, inputs), labels, strict=True):
        e = own * torch.exp(s / 0.5)
        each.append(0.7 * -torch.log(e[0] / e.sum()) + 0.3 * ((s - ratings) ** 2).mean())
    loss = reranker_loss("hybrid", {"alpha": 0.7, "temperature": 0.5}).make(model)
    assert loss(inputs, labels).item() == pytest.approx(torch.stack(each).mean().item(), abs=1e-5)


def test_data_sets_leave_absent_documents_and_unrated_pairs_out():
    collection = made_up()
    source = table(collection, rated=True)
    source = source.reject(np.arange(len(source)) == 2, "cut")
    lists = training_set(collection, source, form="lists")
    assert lists.counts["short lists"] == 1
    listwise = reranker_set(lists, reranker_loss("listnet"))
    assert [len(d) for d in listwise["documents"]] == [4] + [5] * 19
    own = source.table["weight"].to_pylist()
    assert listwise["label"][0][0] == [1, 0, 0, 0]
    assert listwise["label"][0][1] == pytest.approx([1, own[0], own[1], own[3]])
    pointwise = reranker_set(lists, reranker_loss("regression"))
    assert len(pointwise) == 4 + 5 * 19
    assert pointwise["label"][1][1] == pytest.approx([own[0]])
    weighted = reranker_set(lists, reranker_loss("hybrid"))
    assert weighted["label"][0][1] == pytest.approx([1, own[0], own[1], own[3]])


def lists_of(name, target=None, **settings):
    """The first lists, with their labels as tensors."""
    rows = reranker_set(LISTS, reranker_loss(name, settings, target))[:6]
    return [rows["query"], rows["documents"]], [torch.tensor(label) for label in rows["label"]]


def scored(model, inputs):
    pairs = [[(query, document) for document in of] for query, of in zip(*inputs, strict=True)]
    return [model.predict(of, activation_fn=torch.nn.Identity(), convert_to_tensor=True) for of in pairs]


def test_ratings_are_logits_and_unrated_lists_are_left_out(caplog):
    collection = made_up(queries=6)
    source = table(collection, per_query=3)
    elo = 1500 - 173.7178 * np.arange(len(source), dtype=float)
    elo[3:6] = np.nan  # of the second query
    ids = list(dict.fromkeys(source.table["query_id"].to_pylist()))
    own, values = [query.replace("q", "d") for query in ids], {"elo": np.full(len(ids), 1500 + 173.7178)}
    rated = with_positives(source.with_columns({"elo": elo}), ids, own, values)
    lists = training_set(collection, rated, form="lists")
    rows = reranker_set(lists, reranker_loss("listnet", target="elo"))
    assert len(rows) == 2
    assert "1 of 3 lists" in caplog.text
    np.testing.assert_allclose(np.subtract(rows["label"][0][0], rows["label"][0][0][0]), [0, -1, -2, -3], atol=1e-4)


def test_a_curriculum_leaves_hard_negatives_out_of_the_contrast_until_their_epoch(model):
    inputs, labels = lists_of("hybrid")
    loss = reranker_loss("hybrid", {"alpha": 1.0, "curriculum": True}).make(model)
    for epoch, least in ((1, 300.0), (4, 200.0), (7, 100.0)):
        loss.terms.set_epoch(epoch)
        each = []
        for s, (_, w, gap) in zip(scored(model, inputs), labels, strict=True):
            e = w * torch.exp(s) * (1 - (gap <= least).float())
            each.append(-torch.log(e[0] / e.sum()))
        assert loss(inputs, labels).item() == pytest.approx(torch.stack(each).mean().item(), abs=1e-5)


def plain_debiased(s, w, *, tau, prior, concentration):
    """The loss of one list in loops, the positive first, its bound the least score."""
    weights = [float(of) for of in w[1:]]
    e = [np.exp(float(of) / tau) for of in s]
    lean = [of**concentration for of in e[1:]]
    top = sum(own * by * of for own, by, of in zip(weights, lean, e[1:], strict=True))
    mean = top / sum(own * by for own, by in zip(weights, lean, strict=True))
    corrected = max((mean - prior * e[0]) / (1 - prior), min(e))
    return -np.log(e[0] / (e[0] + sum(weights) * corrected))


@pytest.mark.parametrize(
    ("name", "settings", "values"),
    [
        ("debiased", {}, {"tau": 1.0, "prior": 0.1, "concentration": 0.0}),
        ("debiased", {"prior": 0.4, "temperature": 0.5}, {"tau": 0.5, "prior": 0.4, "concentration": 0.0}),
        ("hard-weighted", {}, {"tau": 1.0, "prior": 0.1, "concentration": 1.0}),
        ("hard-weighted", {"concentration": 2.5, "prior": 0.0}, {"tau": 1.0, "prior": 0.0, "concentration": 2.5}),
    ],
)
def test_debiased_and_hard_weighted_lists_equal_plain_loops(name, settings, values, model):
    inputs, labels = lists_of(name, **settings)
    lists = zip(scored(model, inputs), labels, strict=True)
    expected = np.mean([plain_debiased(s, w, **values) for s, (_, w, _) in lists])
    loss = reranker_loss(name, settings).make(model)
    assert loss(inputs, labels).item() == pytest.approx(expected, abs=1e-5)


UNRATED = rows_of("lists", rated=False)


@pytest.mark.parametrize(
    ("name", "settings", "data", "said"),
    [
        *(
            ("debiased", each, None, "expected")
            for each in ({"prior": 1.0}, {"concentration": -1.0}, {"temperature": 0.0})
        ),
        ("weighted", {"curriculum": True}, UNRATED, "a curriculum goes by ratings"),
        ("regression", {}, UNRATED, "rate the negatives"),
        ("listnett", {}, None, "listnet"),
        ("hybrid", {"alfa": 1}, None, "alpha"),
    ],
)
def test_what_cannot_be_trained_is_refused(name, settings, data, said):
    def tried():
        kind = reranker_loss(name, settings)
        return kind.make(None) if data is None else reranker_set(data, kind)

    refused(said, tried)


def test_a_regression_on_ratings_without_offsets_is_warned_of(caplog):
    for name in ("listnet", "hybrid", "binary"):
        reranker_set(LISTS, reranker_loss(name))
    rated = table(made_up(), rated=True)
    offset = rated.with_columns({"offset": np.zeros(len(rated))})
    reranker_set(training_set(made_up(), offset, form="lists"), reranker_loss("regression"))
    assert "between" not in caplog.text
    reranker_set(LISTS, reranker_loss("regression"))
    assert "foils rate --between 6" in caplog.text


def test_a_reranker_is_trained_with_the_prompt_that_it_is_served_with(tmp_path, monkeypatch):
    seen: list[str | None] = []
    model = load_trainable(cross_encoder(tmp_path / "bert"), reranker=True, query_prompt="ba be: ")
    assert (model.prompts["query"], model.default_prompt_name) == ("ba be: ", "query")
    preprocess = type(model).preprocess

    def note(self, *given, prompt=None, **more):
        seen.append(prompt)
        return preprocess(self, *given, prompt=prompt, **more)

    monkeypatch.setattr(type(model), "preprocess", note)
    train_model(model, LISTS, tmp_path / "out", settings=replace(BASE, loss="listnet", epochs=1))
    assert "ba be: " in seen


def test_a_pair_stands_once_however_many_positives_its_query_has():
    documents = {f"d{i}": f"text {i}" for i in range(5)}
    collection = Collection.from_dicts("c", documents, {"q": "query"}, {"train": {"q": {"d0": 1, "d1": 1, "d2": 1}}})
    negatives = Negatives(negatives_table(["q"] * 2, ["d3", "d4"], "s", range(2), [0.0] * 2))
    pairs = reranker_set(training_set(collection, negatives, form="lists"), reranker_loss("binary"))[:]
    assert sorted(pairs["document"]) == list(documents.values())


def test_a_mini_batch_of_a_reranker_is_refused(model, tmp_path):
    settings = replace(BASE, loss="listnet", mini_batch_size=4)
    refused("mini_batch_size", train_model, model, LISTS, tmp_path / "out", settings=settings)


def test_each_step_draws_other_negatives_of_a_list(model, tmp_path):
    """Values go with their documents, the positive is always there, and in time every negative is."""
    seen, documents = set(), [["p", "a", "b", "c", "d"], ["s", "e"]]
    labels = [torch.tensor([[10.0, 11, 12, 13, 14]] * 3), torch.tensor([[20.0, 21]] * 3)]
    values = dict(zip("pabcdse", [10, 11, 12, 13, 14, 20, 21], strict=True))
    for _ in range(40):
        lists, own = drawn(documents, labels, 2)
        assert [len(of) for of in lists] == [3, 2]
        assert [of[0] for of in lists] == ["p", "s"]
        for of, label in zip(lists, own, strict=True):
            assert label.tolist() == [[values[each] for each in of]] * 3
        seen.add(tuple(sorted(lists[0][1:])))
    assert len(seen) == 6
    how = replace(BASE, loss="listnet", draw_negatives=1, trainer={"logging_steps": 1, "save_steps": 1})
    resumed_exactly(
        lambda folder, **more: train_model(
            load_trainable(tmp_path / "model", reranker=True, device="cpu"), LISTS, folder, settings=how, **more
        ),
        tmp_path,
        3,
    )
    settings = replace(BASE, loss="regression", draw_negatives=1)
    refused(
        "draw_negatives 1: no effect with loss regression, which learns from pairs",
        train_model,
        model,
        LISTS,
        tmp_path / "out",
        settings=settings,
    )


def test_without_dropout_training_has_the_gradients_of_a_model_that_is_served(model):
    inputs = lists_of("listnet")
    dropouts = [each for each in model.modules() if isinstance(each, torch.nn.Dropout)]
    found = [second_gradients(reranker_loss("listnet").make(model), *inputs)]
    for each in dropouts:
        each.p = 0.5
    model.train()
    assert not torch.allclose(second_gradients(reranker_loss("listnet").make(model), *inputs), found[0])
    switch_off_dropout(model)
    found.append(second_gradients(reranker_loss("listnet").make(model), *inputs))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def test_other_arguments_of_the_trainer_are_passed_on(model, tmp_path):
    own = {"lr_scheduler_type": "cosine", "gradient_accumulation_steps": 2, "dataloader_num_workers": 0}
    assert train_model(model, LISTS, tmp_path / "out", settings=replace(BASE, trainer=own)).steps == 4
    for wrong in ({"output_dir": "x"}, {"nowhere": 1}):
        with pytest.raises(UnknownNameError, match="argument of the trainer"):
            train_model(model, LISTS, tmp_path / "out2", settings=replace(BASE, trainer=wrong))


class Table(CrossEncoder):
    """A reranker that learns one number for each pair, with what losses ask of a CrossEncoder."""

    num_labels, device = 1, torch.device("cpu")

    def __init__(self):
        torch.nn.Module.__init__(self)
        self.rows, self.scores = {}, torch.nn.Parameter(torch.zeros(64))

    def preprocess(self, pairs, prompt=None, task=None):
        return {"at": torch.tensor([self.rows.setdefault(tuple(pair), len(self.rows)) for pair in pairs])}

    def forward(self, tokens):
        return {"scores": self.scores[tokens["at"]]}


@pytest.fixture(scope="module")
def taught():
    """Lists of a known order: document i of a query has the i-th highest number, its positive the highest."""
    collection = made_up(queries=4)
    source = table(collection, per_query=4)
    ids = list(dict.fromkeys(source.table["query_id"].to_pylist()))
    own = [query.replace("q", "d") for query in ids]
    steps, gaps = (np.resize(each, len(source)) for each in ([1.0, 2.0, 3.0, 4.0], [150.0, 300.0, 500.0, 700.0]))
    numbers = {"elo": 1500 - 200 * steps, "elo_se": np.full(len(steps), 9.0), "gap": gaps, "teacher": 3 - 2 * steps}
    best = {name: np.full(len(ids), value) for name, value in {"elo": 1500.0, "elo_se": 9.0, "teacher": 3.0}.items()}
    widened = with_positives(source.with_columns(numbers), ids, own, best)
    return training_set(collection, widened, form="lists")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", RERANKER_LOSSES)
def test_every_loss_learns_the_order_of_a_target_or_refuses_it(name, target, taught):
    targets = RERANKER_LOSSES[name].targets
    if target not in targets:
        refused(f"cannot learn from target {target}; it takes {', '.join(targets)}", reranker_loss, name, target=target)
        return
    kind = reranker_loss(name, target=target)
    rows = reranker_set(taught, kind)[:]
    loss = kind.make(Table())
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.05)
    labels = [torch.tensor(label) for label in rows["label"]]
    columns = [rows[column] for column in rows if column != "label"]
    for _ in range(150):
        optimizer.zero_grad()
        loss(columns, labels).backward()
        optimizer.step()
    wanted = targets_of(taught, target, numbers=kind.numbers)
    with torch.no_grad():
        batch = taught.dataset[:]
        texts = [batch[c] for c in batch if c != "label"]
        pairs = [[(column[0], text) for text in column[1:]] for column in zip(*texts, strict=True)]
        for own, order in zip(pairs, wanted, strict=True):
            scores = loss.model(loss.model.preprocess(own))["scores"].view(-1).numpy()
            if name in ("weighted", "debiased", "hard-weighted") or target == "labels":
                assert scores.argmax() == 0
            else:
                assert kendalltau(scores, order).statistic >= 0.9


def test_positives_of_a_query_with_the_same_text_are_no_weights(tmp_path):
    """q2 asks what q1 asks, so that its positive, mined for q1, is a positive of q1."""
    texts = {"d1": "a keel is a spine", "d2": "the spine of a boat", "d3": "oars are of ash"}
    queries, qrels = dict.fromkeys(("q1", "q2"), "what is a keel?"), {"train": {"q1": {"d1": 1}, "q2": {"d2": 1}}}
    twice = foils.Collection.from_dicts("twice", texts, queries, qrels)
    mined = foils.mine(twice, "random", top=2)
    assert not training_set(twice, mined, form="lists").weighed
    scored = foils.score_pairs(twice, mined, teacher=static_model(seed=3), vectors=str(tmp_path))
    make_loss("margin-mse", static_model(), training_set(twice, scored), settings={})  # the teacher says what they are
