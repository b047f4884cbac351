"""Pictures say what the model says: every shown split once, what is left out counted, sums that are the ledger's."""

from __future__ import annotations

import json
import re
import sys
from html import escape

import matplotlib as mpl
import numpy as np
import pytest
import sklearn
from matplotlib import pyplot as plt

from hedgerow import Categorical, InvalidModel, Numeric, PrivateTreeClassifier, Schema
from hedgerow.errors import MissingPackage

mpl.use("Agg")
SCHEMA = Schema(
    [Numeric("fever", 35, 42, 400), Categorical("region", ["<b>", "east", "west"])],
    label="ill",
    classes=["no", "yes"],
)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def trained(n_holders: int = 1, **parameters) -> PrivateTreeClassifier:
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(n_holders):
        fever, region = rng.uniform(35, 42, 3_000), rng.choice(["<b>", "east", "west"], 3_000)
        p = 1 / (1 + np.exp(-2 * (fever - 38.5) - (region == "east")))
        X = np.array([fever, region], dtype=object).T
        tables.append((X, np.where(rng.random(3_000) < p, "yes", "no")))
    return PrivateTreeClassifier(schema=SCHEMA, **parameters).fit_holders(tables)


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_a_small_tree_is_drawn_whole():
    model = trained(epsilon=4.0, max_depth=3)
    shown = texts(model.plot())
    tree = model.tree_
    splits = [str(SCHEMA.splits[s]) for s in tree.split if s >= 0]
    assert 3 <= len(splits) <= 7
    assert sorted(text for text in shown if text in splits) == sorted(splits)
    ends = [text for text in shown if "% of ~" in text]
    assert len(ends) == tree.n_leaves
    assert not any("more split" in text for text in shown)
    assert shown.count("yes") == shown.count("no") == tree.n_splits  # the branches


@pytest.mark.parametrize("max_depth", [None, 0, 2])
def test_what_is_not_drawn_is_counted(max_depth):
    model = trained(epsilon=np.inf, max_splits=300)
    assert model.tree_.n_splits > 150
    shown = texts(model.plot(max_depth=max_depth))
    drawn = sum(text in {str(s) for s in SCHEMA.splits} for text in shown)
    left_out = sum(int(found[1]) for text in shown if (found := re.search(r"… (\d+) more split", text)))
    assert drawn + left_out == model.tree_.n_splits
    ends = [text for text in shown if "% of ~" in text]
    assert len(ends) == drawn + 1
    assert len(ends) <= 64
    if max_depth is not None:
        assert len(ends) <= 2**max_depth


def test_labels_stand_inside_the_figure_and_do_not_overlap():
    model = trained(epsilon=np.inf, max_splits=300)
    axes = model.plot()
    axes.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts if text.get_bbox_patch() is not None]
    whole = axes.figure.bbox
    assert len(boxes) > 60
    for i, box in enumerate(boxes):
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


def test_letters_shrink_to_fit_axes_that_are_given():
    model = trained(epsilon=np.inf, max_splits=300)
    _, axes = plt.subplots(figsize=(6, 4))
    assert model.plot(ax=axes) is axes
    assert max(text.get_fontsize() for text in axes.texts) < 6


def test_the_ledger_picture_adds_up_to_what_was_spent():
    model = trained(epsilon=1.0)
    axes = model.ledger_.plot()
    spent, granted = float(model.ledger_.spent), 1.0
    bars = [bar for bar in axes.patches if bar.get_width() > 0]
    filled, left = bars[:-1], bars[-1]
    assert sum(bar.get_width() for bar in filled) == pytest.approx(spent)
    assert left.get_width() == pytest.approx(granted - spent)
    assert left.get_x() == pytest.approx(spent)
    assert "NOT PRIVATE" not in axes.get_title(loc="left")


def test_several_holders_have_a_panel_each_in_the_order_of_their_ledgers(tmp_path):
    model = trained(n_holders=3, epsilon=1.0)
    model.save(tmp_path / "tree.json")
    panels = PrivateTreeClassifier.load(tmp_path / "tree.json").plot_spending()
    assert [axes.get_title(loc="left").split(":")[0] for axes in panels] == [
        "holder 1",
        "holder 2",
        "holder 3",
    ]
    for axes, ledger in zip(panels, model.ledgers_, strict=True):
        filled = [bar.get_width() for bar in axes.patches if bar.get_width() > 0][:-1]
        assert sum(filled) == pytest.approx(float(ledger.spent))


@pytest.mark.parametrize("parameters", [{"noise_seed": 1}, {"epsilon": np.inf}])
def test_pictures_say_loudly_that_a_run_was_not_private(parameters):
    model = trained(**parameters)
    for axes in (model.plot(), model.ledger_.plot(), *model.plot_spending()):
        assert axes.get_title(loc="left").startswith("NOT PRIVATE: ")
    assert "NOT PRIVATE: " in model._repr_html_()
    assert "NOT PRIVATE" not in trained()._repr_html_()


def test_notebooks_show_plan_and_spending_below_the_diagram():
    model = trained()
    page, again = model._repr_mimebundle_()["text/html"], model._repr_html_()
    number = r"sk-(container|estimator)-id-\d+"  # scikit-learn counts its diagrams
    assert re.sub(number, "", page) == re.sub(number, "", again)
    assert "PrivateTreeClassifier" in page
    assert f"{model.tree_.n_splits} splits" in page
    for sentence in model.record_.plan:
        assert escape(sentence) in page
    unfitted = PrivateTreeClassifier(schema=SCHEMA)
    assert "epsilon" in unfitted._repr_html_()
    assert "leaves" not in unfitted._repr_html_()
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert "text/html" not in model._repr_mimebundle_()


def test_a_model_of_unknown_training_draws_its_tree_and_says_so(tmp_path):
    model = trained()
    model.save(tmp_path / "tree.json")
    text = (tmp_path / "tree.json").read_text()
    plain = json.loads(text)
    del plain["training"]
    (tmp_path / "bare.json").write_text(json.dumps(plain))
    bare = PrivateTreeClassifier.load(tmp_path / "bare.json")
    assert texts(bare.plot()) == texts(model.plot())
    assert "does not say how it was trained" in bare._repr_html_()
    with pytest.raises(InvalidModel, match="does not say how it was trained"):
        bare.plot_spending()


def test_a_tree_of_a_single_leaf_is_drawn():
    model = trained(epsilon=np.inf, min_gain=1.0)
    assert model.tree_.n_splits == 0
    (label,) = texts(model.plot())
    assert label.startswith("yes  ")
    assert label.endswith(" of ~3,000")


def test_without_matplotlib_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    model = trained()
    for draw in (model.plot, model.plot_spending, model.ledger_.plot):
        with pytest.raises(MissingPackage, match=r"pip install 'hedgerow\[plot\]'"):
            draw()
