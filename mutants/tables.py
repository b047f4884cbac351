"""Mistakes in what is counted: encoding, exact counts, scores, what a path decides."""

from __future__ import annotations

from mutant import Mutant

ENCODING = "tests/test_encoding.py"
COUNTS = "tests/holder/test_counts.py"
ROWS = "tests/test_tables.py"
ONE_MORE_ROW = "tests/test_one_more_row.py"
FORKS = "tests/privacy/test_forks.py"
PATHS = "tests/test_paths.py"
HOLDER = "tests/holder/test_holder.py"
CLASSIFIER = "tests/test_classifier.py"


def encoding(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("encoding.py", old, new, harm, tests or (ENCODING,), survives)


def counts(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("holder/counts.py", old, new, harm, tests or (COUNTS,), survives)


def scores(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("holder/scores.py", old, new, harm, tests or (COUNTS,), survives)


def paths(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("paths.py", old, new, harm, tests or (PATHS, HOLDER), survives)


def csv_rows(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("csv_rows.py", old, new, harm, tests or (ROWS, ONE_MORE_ROW), survives)


TABLES = [
    # ---- Values and labels
    encoding(
        "if found.size and int(found.max()) == schema.n_classes:",
        "if found.size and int(found.max()) > schema.n_classes:",
        "a label that is no class is taken",
    ),
    encoding(
        "if most[is_wide][position] >= column.n_bins:",
        "if most[is_wide][position] > column.n_bins:",
        "a code leads out of the histogram",
        f"{COUNTS}::test_rows_encoded_by_another_schema_are_refused_before_they_are_counted",
    ),
    encoding(
        "or labels.max(initial=0) >= schema.n_classes",
        "or labels.max(initial=0) > schema.n_classes",
        "a label leads out of the histogram",
        f"{COUNTS}::test_rows_encoded_by_another_schema_are_refused_before_they_are_counted",
    ),
    encoding(
        "np.asarray(values) if has_type else np.array(values, dtype=object)",
        "np.asarray(values)",
        "a row changes how others are read",
    ),
    encoding(
        "- np.int64(x <= edges[at])",
        "- np.int64(x < edges[at])",
        "a value on a threshold is in the wrong bin",
    ),
    encoding("= b if x == x else missing[column]", "= b", "a missing value is in no bin of its own"),
    encoding(
        "while x <= edges[first + b]:",
        "while x < edges[first + b]:",
        "a value on a threshold is in another bin than of a matrix",
    ),
    encoding(
        "position.get(value, unknown)", "position.get(value, 0)", "an unknown value is the first category"
    ),
    encoding(
        "                fits &= here == np.floor(here)\n",
        "                fits &= here == here\n",
        "1.5 is the category 1",
    ),
    encoding(
        "(here < 2.0**63)",
        "(here <= 2.0**63)",
        "2**63 is a category",
        f"{ENCODING}::test_a_number_beyond_64_bits_is_not_taken_for_the_lowest_one",
    ),
    encoding(
        "bins = np.where(_is_missing(values), column.missing_bin, bins)",
        "bins = np.where(_is_missing(values), column.other_bin, bins)",
        "a missing category is an unknown one",
    ),
    encoding(
        "return bool((above >= bins).all() and (at <= bins + 1).all())",
        "return True",
        "a value is in a bin beside its own",
    ),
    encoding(
        "values = np.where(_is_missing(values), np.nan, values)",
        "values = np.where(_is_missing(values), 0.0, values)",
        "a missing number is 0",
    ),
    # ---- Rows and histograms
    counts(
        "np.bincount(rows).max() > 1:",
        "np.bincount(rows).max() > 2:",
        "a row counts twice and pays once",
        f"{COUNTS}::test_a_sample_names_rows_that_are_there_once",
    ),
    counts(
        "        or rows.min(initial=0) < 0\n",
        "",
        "rows of negative numbers are taken",
        f"{COUNTS}::test_a_sample_names_rows_that_are_there_once",
    ),
    counts(
        "or rows.max(initial=-1) >= n_rows",
        "or rows.max(initial=-1) > n_rows",
        "a row is read from beyond the table",
        f"{COUNTS}::test_a_sample_names_rows_that_are_there_once",
    ),
    counts(
        "        if self._is_claimed:\n",
        "        if self._is_claimed is None:\n",
        "two holders, and accounts, share rows",
        f"{HOLDER}::test_rows_belong_to_one_holder",
    ),
    counts(
        "            content.update(np.ascontiguousarray(matrix).data)\n",
        "            content.update(b'')\n",
        "changed values go on as the same rows",
        "tests/holder/test_store.py::test_a_study_goes_on_with_the_rows_and_the_kind_of_noise_it_began_with",
    ),
    counts(
        "hashlib.blake2b(self._order.data,",
        "hashlib.blake2b(b'',",
        "changed labels go on as the same rows",
        "tests/holder/test_store.py::test_a_study_goes_on_with_the_rows_and_the_kind_of_noise_it_began_with",
    ),
    counts(
        " and not is_asked[above]:",
        ":",
        "a parent's histogram becomes its child's while it is asked for",
        f"{HOLDER}::test_a_parent_that_is_asked_about_with_its_children_keeps_its_own_counts",
    ),
    counts(
        "store[place] -= store[row[_sibling(node)]]",
        "store[place] += store[row[_sibling(node)]]",
        "a row is counted on both sides",
    ),
    counts("        self._row[owners[owners != NONE]] = NONE\n", "", "a node gets the histogram of another"),
    counts(
        "            self._row[counted] = self._row[rest] = self._row[self._parent[rest]] = NONE\n",
        "",
        "an interrupted count is taken for one",
        f"{COUNTS}::test_counts_that_failed_are_made_anew",
    ),
    counts(
        "            :0\n",
        "            :\n",
        "an interrupted partition is counted",
        f"{COUNTS}::test_rows_whose_partition_was_interrupted_are_not_counted",
    ),
    counts(
        "        ranges[is_stored] = 0\n",
        "",
        "rows of stored nodes count twice",
        f"{COUNTS}::test_a_node_that_is_named_often_is_counted_once",
    ),
    counts("                histogram[:] = 0\n", "", "counts go on from another node's"),
    counts(
        "for part in range(1, len(parts)):", "for part in range(2, len(parts)):", "rows of a thread are lost"
    ),
    counts(
        "(code - first <= width) | (code == also)",
        "code - first <= width",
        "missing values go to the other side",
    ),
    counts("(code - first <= width)", "(code - first < width)", "rows on a threshold go to the other side"),
    counts(
        "0, MAX_BINS, NONE]",
        "0, 0, NONE]",
        "rows of a side without a split are divided",
        f"{COUNTS}::test_quarters_are_the_cells_of_both_sides",
    ),
    counts(
        "criteria[here], out)",
        "criteria[: len(here)], out)",
        "forks are scored by the criteria of others",
        "tests/holder/test_several_prices.py::test_a_choice_and_its_cells_are_drawn_each_at_its_own_price",
    ),
    counts(
        "return out[which.ravel()]",
        "return out[np.sort(which.ravel())]",
        "cells of forks belong to other nodes",
        f"{COUNTS}::test_quarters_that_are_named_often_are_counted_once",
    ),
    counts("put += n_rows", "put += n_rows - n_rows", "rows of several threads are lost"),
    # ---- Scores and cells
    scores(
        "prefix[stop[s]] - prefix[start[s]]",
        "prefix[stop[s] - 1] - prefix[start[s]]",
        "the last bin of a split is on the wrong side",
    ),
    scores(
        "            left[a, more[i]] += histogram[a, also[i]]\n",
        "            left[a, more[i]] += 0\n",
        "missing values are on the wrong side",
    ),
    scores(
        "prefix[n_bins] - left[a, s]",
        "prefix[histogram.shape[1]] - left[a, s]",
        "the right side has rows many times",
    ),
    scores(
        "            out[node, s] = -out[node, s]\n",
        "            out[node, s] = +out[node, s]\n",
        "the worst split has the highest score",
    ),
    scores(
        "b <= rules[i, 2]) or b == rules[i, 3]",
        "b < rules[i, 2]) or b == rules[i, 3]",
        "cells lack the last bin",
    ),
    scores(
        "b <= rules[i, 2]) or b == rules[i, 3]",
        "b <= rules[i, 2])",
        "cells have missing values on the wrong side",
    ),
    scores(
        "for g in range(f, n_columns):",
        "for g in range(f + 1, n_columns):",
        "a split below another of its column has no rows",
        f"{COUNTS}::test_scores_of_forks_are_minus_the_impurity_of_what_they_make",
    ),
    scores(
        "part[a] -= sums[a, begin + first - 1]",
        "part[a] -= sums[a, begin + first]",
        "a fork lacks its first bin",
        f"{COUNTS}::test_scores_of_forks_are_minus_the_impurity_of_what_they_make",
    ),
    scores(
        "        if also > 0:\n",
        "        if also > 2**30:\n",
        "a fork counts missing values with others",
        f"{COUNTS}::test_scores_of_forks_are_minus_the_impurity_of_what_they_make",
    ),
    scores(
        "histogram[a, :n_bins].sum(), 0.0",
        "0.0, 0.0",
        "a side without a split has the highest score",
        f"{COUNTS}::test_scores_of_forks_are_minus_the_impurity_of_what_they_make",
    ),
    scores(
        "criteria[node], scratch, out[node, 1, s])",
        "criteria[0], scratch, out[node, 1, s])",
        "right sides of forks are scored by another criterion",
        "tests/holder/test_several_prices.py::test_a_choice_and_its_cells_are_drawn_each_at_its_own_price",
    ),
    scores(
        "rules[i, 1 + side]",
        "rules[i, 1]",
        "both sides of a fork are divided alike",
        f"{COUNTS}::test_quarters_are_the_cells_of_both_sides",
    ),
    scores(
        "code <= rule[3]) or code == rule[4]",
        "code < rule[3]) or code == rule[4]",
        "cells of forks lack the last bin",
        f"{COUNTS}::test_quarters_are_the_cells_of_both_sides",
    ),
    scores(
        "code <= rule[3]) or code == rule[4]",
        "code <= rule[3])",
        "cells of forks have missing values on the wrong side",
        f"{COUNTS}::test_quarters_have_missing_values_on_the_side_to_which_their_splits_send_them",
    ),
    scores(
        "if potentials[s] < potentials[best]:",
        "if potentials[s] <= potentials[best]:",
        "without noise the last of equals is the best",
        f"{HOLDER}::test_without_noise_a_node_where_nothing_is_gained_nominates_what_its_path_leaves_open",
        COUNTS,
    ),
    # ---- What a path decides
    paths(
        "        bins[first : last + 1] = False\n",
        "        bins[first:last] = False\n",
        "a bin is reachable on both sides",
    ),
    paths(
        "        bins[last + 1 :] = False\n",
        "        bins[last:] = False\n",
        "the last bin of a side is not reachable",
    ),
    paths(
        "        bins[also] = goes_left\n",
        "        bins[also] = False\n",
        "missing values are reachable nowhere",
    ),
    paths(
        "undecided[s] = (left > 0) & (left < total)",
        "undecided[s] = left < total",
        "a split without a left side is undecided",
    ),
    paths(
        "undecided[s] = (left > 0) & (left < total)",
        "undecided[s] = left > 0",
        "a split without a right side is undecided",
    ),
    paths(".sum() > 1:", ".sum() > 0:", "a node of one bin can be divided"),
    paths(
        "(left > 0) & (left < bins.sum())",
        "left > 0",
        "without noise a decided split is taken for an undecided one",
    ),
    paths("rule, node % 2 == 1)\n        node", "rule, node % 2 == 0)\n        node", "left is right"),
    paths("= not left[: len(rules)].any()", "= True", "no split is an option where there are some"),
    paths(
        "_narrow(bins, rules[s], side == 0)",
        "_narrow(bins, rules[s], side == 1)",
        "sides of a fork are swapped",
    ),
    # ---- Rows of CSV
    csv_rows("elif not line_breaks:", "elif line_breaks:", "a stray quote swallows the lines up to the next"),
    csv_rows(
        "in_quotes = i == start or text[i - 1] == COMMA or closed_at == i - 1",
        "in_quotes = i == start or text[i - 1] == COMMA",
        "a doubled quote ends a value",
    ),
    csv_rows(
        "and not in_quotes and i + 1 <", "and in_quotes and i + 1 <", "a stray carriage return is a line end"
    ),
    csv_rows(
        "        if is_last and n_bytes < n_held:\n", "        if False:\n", "a file may end inside a quote"
    ),
    Mutant(
        "holder/counts.py",
        "content.update(np.ascontiguousarray(matrix).data)",
        "pass",
        "changed values go on as the same rows",
        ("tests/holder/test_store.py",),
    ),
]
