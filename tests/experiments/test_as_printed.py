"""The paper's noise is what the paper prints, and without noise its algorithms are plain decision trees."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from test_parity_with_sklearn import Distinct, few_rows, impurity, mixed, potentials

from hedgerow import PrivateTreeClassifier
from hedgerow.criteria import Criterion, weighted_impurities
from hedgerow.datasets import load
from hedgerow.experiments import as_printed
from hedgerow.experiments.accuracy import Encoded
from hedgerow.experiments.as_printed import Entities, Paper, learn, local_rnm, noisy_counts, single_machine
from hedgerow.experiments.cells import ALGORITHMS, NO_NOISE, Cell
from hedgerow.experiments.versions import CORRECTED, Rows, learn_as_printed, learn_corrected
from hedgerow.holder.counts import GroupedRows

NODE = np.array([0])


@dataclass(frozen=True)
class Quiet(Entities):
    """Entities whose noise is 0; its scales are kept."""

    scales: list = field(default_factory=list)

    def laplace(self, scale, n):
        self.scales.append(np.repeat(scale[:, None], n, axis=1))
        return np.zeros((len(scale), n))

    def publish(self, counts, scale):
        self.scales.append((counts[0].shape, scale))
        return np.sum(counts, axis=0).astype(np.float64)


def quiet(tables):
    return Quiet(tables, np.random.default_rng(0))


def all_rows(entities):
    return np.array([float(sum(entities.n_rows))])


def entities(data, holders):
    codes, labels = data.train
    order = np.array_split(np.random.default_rng(0).permutation(len(labels)), holders)
    return quiet([GroupedRows(codes, labels, data.schema, rows) for rows in order])


def test_single_machine_adds_20_lg_m_over_alpha_m_to_every_gain(tiny_data):
    machine = entities(tiny_data, 1)
    m, alpha = len(tiny_data.train[1]), 0.25
    [split], [gain] = single_machine(machine, NODE, np.array([alpha]), all_rows(machine))
    [scales] = machine.scales
    assert scales.shape == (1, len(tiny_data.schema.splits))
    np.testing.assert_allclose(scales, 20 * math.log2(m) / (alpha * m))
    cells = machine.tables[0].all_cells(NODE)[0]
    gains = weighted_impurities(cells.sum(axis=1), Criterion.entropy) - weighted_impurities(
        cells, Criterion.entropy
    ).sum(axis=1)
    assert split == gains.argmax()
    assert gain == pytest.approx(gains.max() / m)


def test_noisy_counts_adds_3_h_over_alpha_to_counts_of_labels_sides_and_both(tiny_data):
    four = entities(tiny_data, 4)
    [split], [gain] = noisy_counts(four, NODE, np.array([0.25]), all_rows(four))
    n_splits = len(tiny_data.schema.splits)
    assert [shape for shape, _ in four.scales] == [(1, 2), (1, n_splits, 2), (1, n_splits, 2, 2)]
    for _, scale in four.scales:
        np.testing.assert_allclose(scale, 3 * n_splits / 0.25)
    alone = entities(tiny_data, 1)
    [best], [most] = single_machine(alone, NODE, np.array([0.25]), all_rows(alone))
    assert (split, gain) == (best, pytest.approx(most))


def test_local_rnm_spends_half_on_names_and_half_on_counts(tiny_data):
    four = entities(tiny_data, 4)
    local_rnm(four, NODE, np.array([0.25]), all_rows(four))
    names, counts = four.scales[:4], four.scales[4:]
    m = len(tiny_data.train[1]) // 4
    for scale in names:
        np.testing.assert_allclose(scale, 20 * math.log2(m) / (0.125 * m))
    named = {
        int(single_machine(quiet([rows]), NODE, np.array([0.25]), np.array([1.0]))[0][0])
        for rows in four.tables
    }
    assert [shape for shape, _ in counts] == [(1, 2), (1, 4, 2), (1, 4, 2, 2)]
    for _, scale in counts:
        np.testing.assert_allclose(scale, 3 * len(named) / 0.125)


def test_an_entitys_noise_is_laplace_of_its_nodes_scale():
    noise = Entities([], np.random.default_rng(0)).laplace(np.array([3.0, 0.5]), 200_000)
    for scale, drawn in zip((3.0, 0.5), noise, strict=True):
        # |Laplace| is exponential: mean b and standard deviation b; six standard deviations of the means.
        assert abs(np.abs(drawn).mean() - scale) < 6 * scale / math.sqrt(200_000)
        assert abs(drawn.mean()) < 6 * scale * math.sqrt(2 / 200_000)


@pytest.mark.parametrize("scale", [3.0, 1e8, 1e13])
def test_each_entity_publishes_a_noisy_count_between_0_and_its_number_of_rows(scale):
    n = 200_000
    counts = [np.full((1, n), 4), np.full((1, n), 1)]

    class Two(Entities):
        n_rows = (10, 2)

    drawn = Two([], np.random.default_rng(0)).publish(counts, np.array([scale]))
    noise = np.random.default_rng(1).laplace(scale=scale, size=(2, n))
    expected = np.clip(4 + noise[0], 0, 10) + np.clip(1 + noise[1], 0, 2)
    # Both are samples of one distribution: the largest distance of their distribution functions passes
    # sqrt(ln(2 / p) / n) with probability p at most; p is 1e-6.
    points = np.concatenate([drawn[0], expected])
    ours, theirs = (np.searchsorted(np.sort(sample), points, "right") / n for sample in (drawn[0], expected))
    assert np.abs(ours - theirs).max() < math.sqrt(math.log(2e6) / n)
    assert drawn.min() == 0.0
    assert drawn.max() == 12.0


def test_without_noise_the_counts_are_exact():
    counts = [np.arange(6).reshape(2, 3), np.ones((2, 3), dtype=np.int64)]

    class Two(Entities):
        n_rows = (5, 1)

    drawn = Two([], np.random.default_rng(0)).publish(counts, np.zeros(2))
    assert drawn.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_weights_labels_and_budgets_are_the_papers():
    paper = Paper(alpha=8.0)
    assert paper.for_nodes(np.array([1, 3, 2, 3])).tolist() == [2.0, 0.5, 1.0, 0.5]  # alpha / 2 times 2**-d
    assert Paper(8.0, "uniform").for_nodes(np.array([40])).tolist() == [4 / 512]
    assert Paper(8.0, leaf_fraction=0.9).for_leaves == 7.2
    assert as_printed.weight_scale(1000, np.array([0.5])) == 2 / (1000 * 0.5)
    assert as_printed.label_scale(4.0) == 0.5


def test_a_child_is_weighed_with_half_of_its_share(tiny_data):
    machine = entities(tiny_data, 1)
    learn(machine, single_machine, Paper(8.0, max_splits=1, target_error=0.0))
    root, weights, children, labels = machine.scales
    n = len(tiny_data.train[1])
    np.testing.assert_allclose(root, 20 * math.log2(n) / (2.0 * n))  # the root's share, all of it
    assert weights[0] == (2,)  # rows of both children; in rows the printed 2 / (|S| alpha) is 2 / alpha
    np.testing.assert_allclose(weights[1], 2 / 1.0)
    m = machine.tables[0].label_counts(np.array([1, 2])).sum(axis=1)
    np.testing.assert_allclose(children[:, 0], 20 * np.log2(m) / (0.5 * m))
    np.testing.assert_allclose(labels, 2 / 4.0)


class Loud(Entities):
    """Entities whose noise is enormous, on a single gain."""

    def laplace(self, scale, n):
        noise = np.zeros((len(scale), n))
        noise[:, 3] = 1e6
        return noise


def test_a_noisy_gain_counts_as_at_most_the_entropy_of_the_node(tiny_data):
    [table] = entities(tiny_data, 1).tables
    splits, gains = single_machine(Loud([table], np.random.default_rng(0)), NODE, np.array([1.0]), np.ones(1))
    counts = table.label_counts(NODE)
    assert splits.tolist() == [3]
    np.testing.assert_allclose(gains, weighted_impurities(counts, Criterion.entropy) / counts.sum())


def cell(version, algorithm, run=0):
    return Cell("tiny", version, algorithm, NO_NOISE, "decay", 0.5, 1.0, run)


def structure(tree):
    return tree.split.tolist(), tree.left.tolist(), tree.right.tolist()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_noise_printed_and_corrected_grow_the_same_tree(tiny_data, algorithm):
    chosen = cell("as_printed", algorithm)
    rows = Rows.of(tiny_data, chosen)
    printed, corrected = learn_as_printed(chosen, rows), learn_corrected(chosen, rows)
    same_nodes = [(0, 0)]
    for one, other in same_nodes:  # grows as it is read
        if printed.split[one] < 0:
            assert printed.counts[one].argmax() == corrected.counts[other].argmax()
        else:
            assert printed.split[one] == corrected.split[other]
            same_nodes += [
                (mine[one], yours[other])
                for mine, yours in ((printed.left, corrected.left), (printed.right, corrected.right))
            ]
    assert printed.n_splits > 3
    # An entity whose rows are all of one class names the first split there is. In print that may be one that the
    # path has decided, and the tree ends there; corrected it is the first that is undecided.
    if algorithm == "LocalRNM":
        assert corrected.n_splits >= printed.n_splits
    else:
        assert structure(printed) == structure(corrected)
        plain = PrivateTreeClassifier(
            schema=rows.schema, epsilon=math.inf, criterion="entropy", target_error=0.1, min_gain=0.01
        ).fit_codes(*tiny_data.train)
        assert structure(printed) == structure(plain.tree_)


@pytest.mark.parametrize("make", [mixed, few_rows])
@pytest.mark.parametrize("algorithm", ["SingleMachine", "NoisyCounts"])
def test_every_step_of_a_baseline_is_as_good_as_scikit_learns(make, algorithm):
    data = Distinct.of(*make())
    rows = np.repeat(np.arange(len(data.labels)), data.times)
    codes, labels = data.codes.take(rows), data.labels[rows]
    alone = Entities([GroupedRows(codes, labels, data.schema)], np.random.default_rng(0))
    tree = learn(alone, as_printed.PRIVATE_SPLITS[algorithm], Paper(math.inf, target_error=0.0, min_gain=0.0))
    counts = np.zeros((tree.n_nodes, 2))
    np.add.at(counts, (tree.apply(codes), labels), 1)
    for node in reversed(range(tree.n_nodes)):
        if tree.split[node] >= 0:
            counts[node] = counts[tree.left[node]] + counts[tree.right[node]]
    ours = potentials(tree.left, tree.right, impurity(counts, "entropy"))
    theirs = (
        DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=513, random_state=0)
        .fit(data.indicators(), data.labels, sample_weight=data.times)
        .tree_
    )
    expected = potentials(
        theirs.children_left, theirs.children_right, theirs.impurity * theirs.weighted_n_node_samples
    )
    assert len(ours) > 20
    np.testing.assert_allclose(ours, expected[: len(ours)], rtol=1e-9, atol=1e-12 * ours[0])


def test_each_algorithm_has_a_corrected_version():
    assert set(CORRECTED) == set(as_printed.PRIVATE_SPLITS) == set(ALGORITHMS)


def test_the_baseline_on_adult_is_the_plain_tree(data_folder):
    data = Encoded.of(load("adult", folder=data_folder, download=False))
    chosen = replace(cell("as_printed", "SingleMachine"), dataset="adult")
    rows = Rows.of(data, chosen)
    plain = PrivateTreeClassifier(
        schema=data.schema, epsilon=math.inf, criterion="entropy", target_error=0.1, min_gain=0.01
    ).fit_codes(*data.train)
    assert structure(learn_as_printed(chosen, rows)) == structure(plain.tree_)
    assert plain.tree_.n_splits == 512
