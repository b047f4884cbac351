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
        return self.noise(np.repeat(scale[:, None], n, axis=1))

    def noise(self, scale):
        self.scales.append(scale)
        return np.zeros(scale.shape)


def quiet(tables):
    return Quiet(tables, len(tables), np.random.default_rng(0))


def entities(data, holders):
    codes, labels = data.train
    order = np.array_split(np.random.default_rng(0).permutation(len(labels)), holders)
    return quiet([GroupedRows(codes, labels, data.schema, rows) for rows in order])


def test_single_machine_adds_20_lg_m_over_alpha_m_to_every_gain(tiny_data):
    machine = entities(tiny_data, 1)
    m, alpha = len(tiny_data.train[1]), 0.25
    [split], [gain] = single_machine(machine, NODE, np.array([alpha]))
    [scales] = machine.scales
    assert scales.shape == (1, len(tiny_data.schema.splits))
    np.testing.assert_allclose(scales, 20 * math.log2(m) / (alpha * m))
    cells = machine.tables[0].all_cells(NODE)[0]
    gains = weighted_impurities(cells.sum(axis=1), Criterion.entropy) - weighted_impurities(
        cells, Criterion.entropy
    ).sum(axis=1)
    assert split == gains.argmax()
    assert gain == pytest.approx(gains.max() / m)


def test_noisy_counts_adds_3_h_over_alpha_to_every_cell(tiny_data):
    table = entities(tiny_data, 1)
    noisy_counts(table, NODE, np.array([0.25]))
    [scales] = table.scales
    n_splits = len(tiny_data.schema.splits)
    assert scales.shape == (1, n_splits, 2, 2)
    np.testing.assert_allclose(scales, 3 * n_splits / 0.25)


def test_local_rnm_spends_half_on_names_and_half_on_counts(tiny_data):
    four = entities(tiny_data, 4)
    local_rnm(four, NODE, np.array([0.25]))
    *names, counts = four.scales
    m = len(tiny_data.train[1]) // 4
    for scale in names:
        np.testing.assert_allclose(scale, 20 * math.log2(m) / (0.125 * m))
    named = {int(single_machine(quiet([rows]), NODE, np.array([0.25]))[0][0]) for rows in four.tables}
    np.testing.assert_allclose(counts, 3 * len(named) / 0.125)


def test_an_entitys_noise_is_laplace_of_its_nodes_scale():
    noise = Entities([], 1, np.random.default_rng(0)).laplace(np.array([3.0, 0.5]), 200_000)
    for scale, drawn in zip((3.0, 0.5), noise, strict=True):
        # |Laplace| is exponential: mean b and standard deviation b; six standard deviations of the means.
        assert abs(np.abs(drawn).mean() - scale) < 6 * scale / math.sqrt(200_000)
        assert abs(drawn.mean()) < 6 * scale * math.sqrt(2 / 200_000)


def test_summed_noise_is_that_of_k_laplace_variables():
    noise = Entities([], 4, np.random.default_rng(0)).noise(np.full(400_000, 3.0))
    assert abs(noise.mean()) < 6 * math.sqrt(4 * 2 * 9 / 400_000)
    # Variance 2 b^2 and fourth central moment 24 b^4 each; six standard deviations of the sample variance.
    variance, fourth = 4 * 2 * 9, 4 * 24 * 81 + 3 * 4 * 3 * (2 * 9) ** 2
    assert abs(noise.var() - variance) < 6 * math.sqrt((fourth - variance**2) / 400_000)


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
    np.testing.assert_allclose(weights, 2 / (n * 1.0))
    m = machine.tables[0].label_counts(np.array([1, 2])).sum(axis=1)
    np.testing.assert_allclose(children[:, 0], 20 * np.log2(m) / (0.5 * m))
    np.testing.assert_allclose(labels, 2 / 4.0)


@pytest.mark.parametrize(("noisy", "counted"), [(1e6, 1.0), (0.3, 0.3)])
def test_a_noisy_gain_counts_as_at_most_1(tiny_data, noisy, counted):
    study = as_printed._Study(
        entities(tiny_data, 1), lambda *_: (np.array([0]), np.array([noisy])), Paper(8.0)
    )
    study.evaluate(NODE)
    assert study.growth.nodes["gain"].tolist() == [counted]


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
    alone = Entities([GroupedRows(codes, labels, data.schema)], 4, np.random.default_rng(0))
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
