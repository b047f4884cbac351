"""Mistakes of a holder: what it releases, in which order, what it refuses, what it writes down.

And of the classifier, and of a coordinator whose holders take turns.
"""

from __future__ import annotations

from mutant import Mutant

HOLDER = "tests/holder/test_holder.py"
PRICES = "tests/holder/test_several_prices.py"
COUNTING = f"{PRICES}::test_the_noise_of_each_nodes_counts_has_the_scale_of_their_price"
CLOCK = "tests/holder/test_clock.py"
DESK = "tests/holder/test_desk.py"
KEYS, PROCESS = "tests/transport/test_keys.py", "tests/transport/test_site_process.py"
REMOTE = "tests/transport/test_remote.py"
SITE = "tests/transport/test_site.py"
STORE = "tests/holder/test_store.py"
MESSAGES = "tests/test_messages.py"
CLASSIFIER = "tests/test_classifier.py"
TURNS = "tests/privacy/test_accounts_of_turns.py"
FORKED_CELLS = "tests/privacy/test_sensitivity.py::test_every_kind_of_row_is_in_one_cell_of_every_fork"

PARSING = tuple(  # all but those of arbitrary requests, which take longer
    f"{MESSAGES}::{test}"
    for test in (
        "test_anything_else_is_refused_with_a_reason",
        "test_bytes_that_are_no_message_are_refused",
        "test_a_message_that_is_too_long_is_not_even_read",
        "test_no_part_of_an_announcement_splits_a_child_of_its_own",
        "test_what_is_written_is_read_back",
    )
)


def holder(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("holder/holder.py", old, new, harm, tests or (HOLDER,), survives)


def keys(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("holder/keys.py", old, new, harm, tests or (HOLDER,), survives)


def desk(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("holder/desk.py", old, new, harm, tests or (DESK,), survives)


def certificates(old: str, new: str, harm: str) -> Mutant:
    return Mutant("transport/keys.py", old, new, harm, (KEYS,))


def store(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("holder/store.py", old, new, harm, tests or (STORE,), survives)


def messages(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("messages.py", old, new, harm, tests or PARSING, survives)


def turns(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("learner/turns.py", old, new, harm, tests or (TURNS,), survives)


def classifier(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("classifier.py", old, new, harm, tests or (CLASSIFIER,), survives)


SITES = [
    # ---- What a holder refuses
    holder(
        "if rows.n_rows > max_rows:",
        "if rows.n_rows > 2 * max_rows:",
        "there are more rows than the noise is made for",
        DESK,
        CLASSIFIER,
    ),
    holder("        rows.claim()\n", "", "two holders, and accounts, share rows"),
    holder(
        "and query.splits.max() >= n_splits",
        "and query.splits.max() > n_splits",
        "cells of no split are read from other memory",
        DESK,
        HOLDER,
    ),
    holder(
        "growth.splits.max() >= len(", "growth.splits.max() > len(", "an announced split is not in the schema"
    ),
    holder("if growth.first != n_nodes:", "if growth.first > n_nodes:", "an announcement is of another tree"),
    holder(
        "n_nodes + 2 * len(growth.nodes) > MOST_NODES",
        "n_nodes + len(growth.nodes) > MOST_NODES",
        "a study has more nodes than are remembered",
    ),
    holder(
        "quote.depths[n_nodes:].max()", "quote.depths[:n_nodes].max()", "a tree is one level too deep", DESK
    ),
    holder(
        "MOST_GENERATIONS + 1))) > MOST_GENERATIONS",
        "MOST_GENERATIONS + 1))) > MOST_GENERATIONS + 1",
        "an announcement has endless generations",
    ),
    holder(
        "if self.ledger.n_parts != n_nodes:",
        "if self.ledger.n_parts < n_nodes:",
        "an interrupted holder goes on",
    ),
    holder(
        "if query.selector != Exponential.name:",
        "if query.selector not in SELECTORS:",
        "forks are booked as chosen in another way",
    ),
    holder(
        "if not self.schema.can_fork:",
        "if not self.schema.splits:",
        "there are too many forks to choose among",
    ),
    holder(
        "if len(query.nodes) > MOST_FORKS:",
        "if len(query.nodes) > 2 * MOST_FORKS:",
        "a request keeps the holder busy for minutes",
    ),
    holder(
        "if query.selector not in SELECTORS:",
        "if not query.selector:",
        "a selector that there is not is taken",
        DESK,
    ),
    holder("and n_classes != 2:", "and n_classes < 2:", "root gini of three classes is asked for"),
    holder("16 * math.prod(", "4 * math.prod(", "an answer is too long for a message", DESK),
    holder(
        "if isinstance(query, Nominate) and not (",
        "if type(query) is Nominate and not (",
        "a choice with its cells is made where nothing is to choose",
        HOLDER,
        PRICES,
    ),
    holder(
        "in zip(releases_of(query), prices, strict=True):",
        "in zip(releases_of(query)[:1], prices[:1], strict=True):",
        "the noise of cells does not fit a message",
        DESK,
    ),
    holder(
        "largest * min(Repeated",
        "largest * max(Repeated",
        "the noise of one node of many does not fit a message",
        DESK,
    ),
    holder(
        "sensitivity, largest = self._histograms(kind), LARGEST_NOISE",
        "sensitivity, largest = 1, LARGEST_NOISE",
        "the noise of many histograms does not fit a message",
        DESK,
        HOLDER,
    ),
    holder(
        "sensitivity = max(\n",
        "sensitivity = min(\n",
        "the noise of one criterion of many does not fit",
        DESK,
        HOLDER,
    ),
    holder("        self._check_scale(query, prices)\n", "", "noise does not fit a message", DESK),
    # ---- What it charges, and when
    holder("        self.ledger.book(considered.quote)\n", "", "nothing is charged"),
    holder(
        "return self.release(self.charge(self.consider(growth, query)))",
        "considered = self.consider(growth, query)\n"
        "        noise = self._noise.laplace(np.zeros((1, 1), np.int64), Fraction(1), np.zeros(1, np.uint64))\n"
        "        return self.release(self.charge(considered)) + 0 * noise[0, 0]",
        "noise is drawn before it is charged",
    ),
    holder(
        "prices.append(Price(LAPLACE, cells, query.cell_epsilons))",
        "prices.append(Price(LAPLACE, cells, query.epsilons))",
        "cells are booked at the price of the choice",
        PRICES,
    ),
    holder(
        "        prices.append(Price(LAPLACE, cells, query.cell_epsilons))",
        "        prices.append(Price(LAPLACE, cells, list(map(min, query.epsilons, query.cell_epsilons))))",
        "cells are booked at the lower price",
        PRICES,
    ),
    holder(
        "prices = [Price(query.selector, choice, query.epsilons)]",
        "prices = [Price(query.selector, choice, getattr(query, 'cell_epsilons', query.epsilons))]",
        "a choice is booked at the price of its cells",
        PRICES,
    ),
    holder(
        "Price(LAPLACE, WHAT[type(query)], query.epsilons)",
        "Price(LAPLACE, WHAT[type(query)], [min(query.epsilons)] * len(query.nodes))",
        "all nodes are booked at the lowest price",
        HOLDER,
        DESK,
        PRICES,
    ),
    holder(
        "prices_of(query), None if growth is None else growth.nodes)",
        "prices_of(query), None)",
        "a written account forgets how the tree has grown",
        STORE,
    ),
    # ---- What it releases
    holder(
        "noisy = self._noisy(CountCells, query.cell_epsilons, charged.keys[1], cells)\n                return np.concatenate([forks",
        "noisy = self._noisy(CountCells, query.epsilons, charged.keys[1], cells)\n                return np.concatenate([forks",
        "cells of forks are drawn at the price of the choice",
        PRICES,
    ),
    holder(
        "noisy = self._noisy(CountCells, query.cell_epsilons, charged.keys[1], cells)\n                return np.concatenate([splits",
        "noisy = self._noisy(CountCells, query.epsilons, charged.keys[1], cells)\n                return np.concatenate([splits",
        "cells of splits are drawn at the price of the choice",
        PRICES,
    ),
    holder(
        "np.concatenate([forks, noisy.reshape",
        "np.concatenate([forks, cells.reshape",
        "exact cells of forks leave",
        PRICES,
    ),
    holder(
        "np.concatenate([splits[:, None], noisy.reshape",
        "np.concatenate([splits[:, None], cells.reshape",
        "exact cells of splits leave",
        PRICES,
    ),
    holder(
        "splits = self._nominate(query, charged.keys[0])\n                cells",
        "splits = self._nominate(query, charged.keys[1])\n                cells",
        "a choice and its cells share a key",
        PRICES,
    ),
    holder(
        "query.epsilons, charged.keys[0], counts)",
        "[max(query.epsilons)] * len(counts), charged.keys[0], counts)",
        "all counts are drawn at the highest price",
        COUNTING,
    ),
    holder(
        "{CountSplits: len(self.schema.splits),",
        "{CountSplits: 1,",
        "cells of every split are drawn as if of one",
        COUNTING,
    ),
    holder(
        "CountColumns: len(self.schema.columns)}",
        "CountColumns: 1}",
        "histograms of every column are drawn as if of one",
        COUNTING,
    ),
    holder(
        "histograms / _fraction(epsilon)",
        "1 / _fraction(epsilon)",
        "a row counts in many histograms, and pays for one",
        COUNTING,
    ),
    holder(
        "histograms / _fraction(epsilon)",
        "histograms / (2 * _fraction(epsilon))",
        "counts have half their noise",
        COUNTING,
    ),
    holder(
        "self._max_rows))\n            chosen[batch]",
        "self._rows.n_rows))\n            chosen[batch]",
        "the noise of a choice shows how many rows there are",
    ),
    holder(
        "\n        sensitivities = criteria.map(lambda each: score_sensitivity(each, n_classes, self._max_rows))",
        "\n        sensitivities = criteria.map(lambda each: score_sensitivity(each, n_classes, self._rows.n_rows))",
        "the noise of a fork shows how many rows there are",
        PRICES,
    ),
    holder(
        "numbers[batch])),",
        "numbers[: len(batch)])),",
        "nodes are scored by the criteria of others",
        PRICES,
        HOLDER,
    ),
    holder(
        "sensitivities.at(batch),",
        "sensitivities.at(batch - batch[0]),",
        "nodes have the sensitivities of others",
        PRICES,
        HOLDER,
    ),
    holder(
        "epsilons.at(batch).map(_fraction)",
        "epsilons.at(batch - batch[0]).map(_fraction)",
        "nodes are chosen for at the prices of others",
        PRICES,
        HOLDER,
    ),
    holder("self._paths.undecided(query.nodes[batch]),", "None,", "a split is chosen that the path decides"),
    holder(
        "self._paths.undecided(nodes[batch]),",
        "self._paths.undecided(nodes[batch]) | True,",
        "a fork is chosen whose first split the path decides",
    ),
    holder(
        "self._paths.undecided_below(nodes[batch]),",
        "self._paths.undecided_below(nodes[batch]) | True,",
        "a fork is chosen whose other splits are decided",
    ),
    holder(
        "(which <= batch[-1])", "(which < batch[-1])", "the last fork of a batch is whatever was in memory"
    ),
    holder(
        "which[places] - batch[0],",
        "(which[places] - batch[0]) * 0,",
        "forks are chosen by the scores of others",
        PRICES,
        HOLDER,
    ),
    holder(
        "sensitivities.at(places),",
        "sensitivities.at(places - places[0]),",
        "forks have the sensitivities of others",
        PRICES,
        HOLDER,
    ),
    holder(
        "rates.at(places),",
        "rates.at(places - places[0]),",
        "forks are chosen at the prices of others",
        PRICES,
        HOLDER,
    ),
    holder(
        "np.unique([query.nodes, numbers],",
        "np.unique([query.nodes, numbers * 0],",
        "forks are scored by gini, whatever was asked",
        PRICES,
    ),
    holder(
        "        if len(decided):\n",
        "        if len(decided) < 0:\n",
        "without noise a decided split is chosen",
    ),
    holder(
        "growth.nodes[part], growth.splits[part])",
        "growth.nodes[part], growth.splits[: part.stop - part.start])",
        "later generations are split by the splits of earlier ones",
        HOLDER,
        "tests/learner/test_forked_trees.py",
    ),
    holder(
        "        self._paths = paths  #",
        "        self._paths = self._paths  #",
        "what is decided is forgotten",
    ),
    # ---- Cells of forks
    holder(
        "query.forks.max() >= n_splits:",
        "query.forks.max() > n_splits:",
        "a fork by a split that is not in the schema is counted",
        f"{DESK}::test_a_refused_request_changes_nothing_not_even_the_tree",
    ),
    holder(
        "rows.quarters(query.nodes, query.forks)",
        "rows.quarters(query.nodes, np.tile(query.forks[:1], (len(query.nodes), 1)))",
        "forks are counted by the splits of the first",
        FORKED_CELLS,
    ),
    holder(
        "CountForks: (2, 2, n_classes),",
        "CountForks: (2, n_classes),",
        "an answer of forks may be twice as long as a message",
        f"{DESK}::test_an_answer_has_the_shape_that_it_was_measured_by",
    ),
    messages(
        "np.column_stack([self.splits, self.left_splits, self.right_splits])",
        "np.column_stack([self.splits, self.left_splits, self.left_splits])",
        "both sides of a fork are counted by the left one's split",
        FORKED_CELLS,
    ),
    messages(
        '"left_splits": lambda value: _numbers(value, -1)',
        '"left_splits": lambda value: _numbers(value, -2)',
        "a left split is counted from the end of the schema",
    ),
    messages(
        '"right_splits": lambda value: _numbers(value, -1)',
        '"right_splits": lambda value: _numbers(value, -2)',
        "a right split is counted from the end of the schema",
    ),
    messages(
        '{"splits", "left_splits", "right_splits",',
        '{"splits", "right_splits",',
        "forks may have fewer left splits than nodes",
    ),
    messages(
        '{"splits", "left_splits", "right_splits",',
        '{"splits", "left_splits",',
        "forks may have fewer right splits than nodes",
    ),
    desk(
        '"turns": frozenset({CountLabels, NominateAndCount, NominateForks, CountForks}),',
        '"turns": ALL_QUERIES,',
        "who is granted turns is granted all",
    ),
    # ---- Taking turns
    turns(
        'records["remaining"][nodes[places], holder] -= turns.select[places]',
        'records["remaining"][nodes[places], holder] -= 0',
        "a choice is not booked",
    ),
    turns(
        'records["remaining"][nodes] -= paid',
        'records["remaining"][nodes] -= 0 * paid',
        "cells that all count are not booked",
    ),
    turns(
        'records["remaining"][mine, holder] -= paid',
        'records["remaining"][mine, holder] -= 0 * paid',
        "class counts are not booked",
    ),
    turns(
        'records["remaining"][children] = records["remaining"][nodes][:, None]',
        'records["remaining"][children] = GRAINS',
        "children begin with all that the root had",
    ),
    turns(
        'records["remaining"][children] = records["remaining"][nodes][:, None]',
        'records["remaining"][children] = records["remaining"][nodes].max(axis=1)[:, None, None]',
        "children have what the richest holder has left",
    ),
    turns(
        "forks[places], self._priced(turns.count[places, holder])",
        "forks[places], self._priced(2 * turns.count[places, holder])",
        "cells are counted at twice the price that is booked",
    ),
    turns(
        "self._priced(mine.select), self._priced(mine.count[:, holder])",
        "self._priced(mine.select), self._priced(mine.select)",
        "a chooser's cells cost as much as its choice",
    ),
    turns(
        "chosen & (turns.chooser != holder) &",
        "chosen & (turns.chooser >= 0) &",
        "a chooser counts twice what is booked once",
    ),
    turns(
        "np.minimum(least[parent[node]], least[node], out=least[parent[node]])",
        "np.minimum(least[parent[node]], GRAINS, out=least[parent[node]])",
        "leaves are labelled with what was spent below them",
        TURNS,
        "tests/learner/test_holders.py::test_every_holder_has_spent_what_the_coordinator_planned",
    ),
    # ---- Keys of seeded noise
    keys(
        "self._served[nodes, purpose] + _earlier(nodes)",
        "self._served[nodes, purpose]",
        "a node named twice gets the same seeded noise twice",
    ),
    keys(
        "np.add.at(self._served[:, purpose], nodes, 1)",
        "self._served[nodes, purpose] += 1",
        "seeded noise repeats after a node was named twice",
    ),
    keys("% np.uint64(2)", "% np.uint64(1)", "siblings get the same seeded noise"),
    # ---- The desk
    desk("if request.study != self.study:", "if not request.study:", "another study is served"),
    desk(
        "        if self._is_behind:\n",
        "        if self._is_behind is None:\n",
        "a desk goes on that has lost a request",
    ),
    desk(
        "if type(request.query) not in self._queries:",
        "if type(request.query) not in ALL_QUERIES:",
        "queries are answered that were not granted",
    ),
    desk("if asked != data:", "if not asked:", "one name stands for two requests"),
    desk(
        "self._journal.charged(request.identifier, data, considered.quote.spent)\n            self._is_behind = True\n"
        "            self._looks_at_a_row = MOST_GENERATIONS  # until it is known\n"
        "            self._unanswered[request.identifier] = self.holder.charge(considered)\n",
        "self._is_behind = True\n            self._unanswered[request.identifier] = self.holder.charge(considered)\n"
        "            self._journal.charged(request.identifier, data, considered.quote.spent)\n",
        "a request is followed before it is written down",
    ),
    desk(
        "data, considered.quote.spent)",
        "data, self.holder.ledger.spent)",
        "what is written down is a request behind",
        DESK,
        STORE,
    ),
    desk(
        "        self._journal.answered(request.identifier, answer)\n",
        "",
        "an answer leaves before it is written down",
    ),
    desk(
        "            if answer is not None:\n                return answer\n",
        "",
        "a repeated request is answered with other noise",
    ),
    desk(
        "        with self._one_at_a_time:\n",
        "        if self._one_at_a_time:\n",
        "a request from two threads is charged twice, or half",
    ),
    desk(
        "        if rows.schema.hash != self.schema:\n",
        "        if not self.schema:\n",
        "rows of another schema are served",
    ),
    desk(
        "leaks = () if noise.private else",
        "leaks = () if noise else",
        "seeded noise at a desk says that it is private",
        DESK,
        STORE,
    ),
    desk(
        "Desk(self.study, holder, journal, self.queries, AnswerClock(self.quantum))",
        "Desk(self.study, holder, journal, clock=AnswerClock(self.quantum))",
        "a grant of one method grants all",
    ),
    desk(
        "            neighbours=self.neighbours,\n            leaks",
        "            leaks",
        "replacing a row costs once at a desk",
        DESK,
        STORE,
    ),
    desk(
        "Holder(rows, noise, ledger, self.max_rows)",
        "Holder(rows, noise, ledger, rows.n_rows)",
        "noise is made for the rows that are there",
        DESK,
        STORE,
    ),
    desk(
        '"paper": SELECTING,', '"paper": SELECTING | {CountSplits},', "a method is granted more than it asks"
    ),
    desk(
        "not 0 < self.epsilon < math.inf:", "not 0 <= self.epsilon < math.inf:", "a study is granted nothing"
    ),
    desk(
        "if self.neighbours not in NEIGHBOURS:",
        "if not self.neighbours:",
        "neighbours are misspelt, and cost once",
    ),
    desk(
        "        except InvalidStore:\n            LOG",
        "        except ZeroDivisionError:\n            LOG",
        "a refusal quotes the holder's files",
    ),
    # ---- The store
    store(
        "sum((_exact(other) for [other] in others), spent) >", "spent >", "studies do not share one lifetime"
    ),
    store(
        "spent) > self._store.lifetime_epsilon:",
        "spent) >= self._store.lifetime_epsilon:",
        "the last of a lifetime is refused",
    ),
    store("WHERE number != ?", "WHERE number > ?", "earlier studies are forgotten"),
    store(
        "SET spent = ? WHERE number = ?",
        "SET spent = ? WHERE number >= ?",
        "what is spent is written to other studies too",
    ),
    store(
        "str(spent), self._number)",
        "str(Fraction(spent).limit_denominator(1000)), self._number)",
        "what is spent is rounded",
    ),
    store('self.all("BEGIN IMMEDIATE")', 'self.all("SELECT 1")', "a charge is written in parts"),
    store(
        "PRAGMA synchronous = EXTRA",
        "PRAGMA synchronous = OFF",
        "a charge may not reach the disk before the answer leaves",
    ),
    store("journal_mode = DELETE", "journal_mode = WAL", "a copy of the file lacks charges"),
    store("AND identifier = ? AND answer IS NULL", "AND identifier = ?", "an answer is written over"),
    store(
        'if database.all("SELECT changes()") != [(1,)]:',
        'if database.all("SELECT changes()") == []:',
        "another process's answer leaves too",
    ),
    store(
        "            if not asked:\n", "            if asked >= 0:\n", "terms and rows change under a study"
    ),
    store(
        '        self._agree("basis", _basis(rows, noise, self._store.key()))\n',
        "",
        "a study goes on with other rows",
    ),
    store(
        '"private noise": noise.private}',
        '"private noise": True}',
        "a study of seeded noise is told to be private",
    ),
    store('"rows": rows.fingerprint(key)', '"rows": str(rows.n_rows)', "a study goes on with changed rows"),
    store("if ledger.spent != spent:", "if ledger.spent < spent:", "a store that understates is taken"),
    store(
        "        _check_spent(self.grant.study, desk.holder.ledger,",
        "        str((self.grant.study, desk.holder.ledger,)) or _check_spent(self.grant.study, desk.holder.ledger,",
        "a study goes on from an account that does not follow",
    ),
    store("if epsilon < 0:", "if epsilon < -1:", "a study lends others what it has not spent"),
    store(
        "if (application, version) != (APPLICATION, VERSION):",
        "if application != APPLICATION:",
        "a store of another version is read",
    ),
    store(
        'if database.all("PRAGMA quick_check") != [("ok",)]:',
        'if database.all("PRAGMA quick_check") == []:',
        "a damaged store is taken",
    ),
    store('lock.execute("BEGIN EXCLUSIVE")', 'lock.execute("BEGIN")', "two processes serve one study"),
    store("        new.chmod(OWN)\n", "        new.chmod(0o644)\n", "others may read a hash of all rows"),
    store(
        'neighbours=terms["neighbours"], leaks=leaks)',
        "leaks=leaks)",
        "an account from the journal costs half",
    ),
    store(
        "asdict(grant) | exact",
        '{"neighbours": grant.neighbours} | exact',
        "max_rows changes under a study",
    ),
    store("        PRIMARY KEY (study, place),\n", "", "two writers spend behind each other's back"),
    store("self._place += 1", "self._place += 0", "a second request is refused"),
    store(
        'leaks = () if basis.get("private noise") is True else',
        "leaks = () if basis else",
        "an account of seeded noise is told to be private",
    ),
    # ---- Messages
    messages(
        "if next(met) > MOST_PARTS:",
        "if next(met) > 2**20 * MOST_PARTS:",
        "a small message takes much memory",
        f"{MESSAGES}::test_bytes_that_are_no_message_are_refused",
    ),
    messages("if to_bytes(message) != data:", "if not message:", "a request has several forms"),
    messages(
        'if field in ONE_A_NODE and len(value) != len(values["nodes"]):',
        'if field in ONE_A_NODE and len(value) < len(values["nodes"]):',
        "there are more prices than nodes",
    ),
    messages(
        '"epsilons", "cell_epsilons", "criteria"',
        '"epsilons", "criteria"',
        "there are fewer prices of cells than nodes",
    ),
    messages("array.min() < low or array", "array", "nodes have negative numbers"),
    messages(
        "or array.max() > MOST_NUMBER)", "or array.max() > 2 * MOST_NUMBER)", "numbers are no floats any more"
    ),
    messages(
        "if not 0 < len(array) <= MOST_NODES:",
        "if not 0 <= len(array) <= MOST_NODES:",
        "a request is about nothing",
    ),
    messages(
        "if not 0 < len(array) <= MOST_NODES:",
        "if not 0 < len(array):",
        "a request is about more nodes than memory has",
    ),
    messages(
        "if type(value) is not int or not 0 < value",
        "if type(value) is not int or not 0 <= value",
        "a child is the root",
    ),
    messages(
        "which.max() != len(distinct) - 1",
        "which.max() > len(distinct) - 1",
        "a list has prices that nobody pays",
    ),
    messages(
        "if len(set(items)) < len(distinct):",
        "if len(items) < len(distinct):",
        "a list of prices has several forms",
    ),
    messages("if str(epsilon) != text:", "if not text:", "a price has several forms"),
    messages("[1-9][0-9]{{0", "[0-9][0-9]{{0", "a price is 0", MESSAGES),
    messages("{{0,{MOST_DIGITS - 1}}}", "*", "a price has endless digits", MESSAGES),
    messages("if len(data) > MOST_BYTES:", "if len(data) > 2 * MOST_BYTES:", "a message fills the memory"),
    messages('r"[A-Za-z0-9_.:-]+"', 'r"[\\w.:-]+"', "a name has letters that look alike"),
    messages(
        ">= self.first + 2 * start)",
        ">= self.first + 2 * start + 2)",
        "a part of an announcement splits its own children",
        MESSAGES,
        HOLDER,
    ),
    # ---- The classifier
    classifier(
        "return SECURE_NOISE[self.noise]",
        "return SeededNoise(0)",
        "noise that anybody can take off again",
        f"{CLASSIFIER}::test_a_fit_draws_the_noise_that_was_asked_for_and_says_whether_it_is_private",
    ),
    classifier(
        "return SECURE_NOISE[self.noise]",
        'return SECURE_NOISE["exact"]',
        "not the noise that was asked for",
        f"{CLASSIFIER}::test_a_fit_draws_the_noise_that_was_asked_for_and_says_whether_it_is_private",
    ),
    classifier(
        "[int(self.noise_seed), holder]",
        "[int(self.noise_seed), 0]",
        "holders draw the same seeded noise",
        f"{CLASSIFIER}::test_holders_with_equal_rows_draw_noise_of_their_own",
    ),
    classifier(
        "elif self.noise_seed is not None:",
        "elif self.noise_seed:",
        "noise of seed 0 is told to be private",
        f"{CLASSIFIER}::test_a_fit_draws_the_noise_that_was_asked_for_and_says_whether_it_is_private",
    ),
    classifier(
        "        if not isinstance(self.schema, Schema):\n            leaks",
        "        if self.schema is None:\n            leaks",
        "bounds read from the rows are told to be private",
        f"{CLASSIFIER}::test_a_model_without_noise_or_of_a_schema_from_the_rows_does_not_load_as_a_private_one",
    ),
    classifier(
        "        if not math.isfinite(self.epsilon):\n            leaks.append",
        "        if math.isnan(self.epsilon):\n            leaks.append",
        "no noise is told to be private",
        f"{CLASSIFIER}::test_a_fit_draws_the_noise_that_was_asked_for_and_says_whether_it_is_private",
    ),
    classifier(
        "neighbours=self.neighbours, leaks=self._leaks()),",
        "neighbours=self.neighbours),",
        "the account says of nothing that it leaks",
        f"{CLASSIFIER}::test_a_fit_draws_the_noise_that_was_asked_for_and_says_whether_it_is_private",
    ),
    classifier(
        "Ledger(self._grant(), neighbours=self.neighbours,",
        "Ledger(self._grant(),",
        "replacing a row costs once in a fit",
        f"{HOLDER}::test_replacing_a_row_is_booked_twice",
    ),
    classifier(
        "return as_written(self.epsilon) if",
        "return Fraction(self.epsilon) if",
        "0.1 is granted as a float above it",
        f"{CLASSIFIER}::test_a_decimal_is_granted_as_it_is_written",
    ),
    classifier(
        "                self._most_rows(),\n",
        "                rows.n_rows,\n",
        "noise is made for the rows that are there",
        f"{CLASSIFIER}::test_noise_is_made_for_max_rows_and_not_for_the_rows",
    ),
    classifier(
        "            check_rows(np.concatenate(dealt), codes.n_rows)\n",
        "            pass\n",
        "a row belongs to two holders",
        f"{CLASSIFIER}::test_a_row_is_dealt_out_to_one_holder_once",
    ),
    classifier(
        "if any(rows.schema != schema for rows in tables):",
        "if any(rows.schema is None for rows in tables):",
        "rows are counted by another schema",
        f"{CLASSIFIER}::test_rows_grouped_by_another_schema_are_refused",
    ),
    classifier(
        'check_number("epsilon", self.epsilon, lambda v: v > 0,',
        'check_number("epsilon", self.epsilon, lambda v: v >= 0,',
        "an epsilon of 0 is taken",
        f"{CLASSIFIER}::test_an_invalid_parameter_is_named_with_its_value_and_what_is_expected",
    ),
    classifier(
        "            model.neighbours = record.neighbours\n",
        "",
        "a loaded model trains again at half its price",
        f"{CLASSIFIER}::test_a_loaded_model_trains_again_at_the_same_price",
    ),
    classifier(
        "            if FROM_ROWS in record.leaks:\n",
        "            if FROM_ROWS in ():\n",
        "a schema read from rows becomes a public one",
        f"{CLASSIFIER}::test_a_model_without_noise_or_of_a_schema_from_the_rows_does_not_load_as_a_private_one",
    ),
    classifier(
        "if 0 < record.epsilon < math.inf:",
        "if 0 < record.epsilon:",
        "a loaded model trains without noise",
        f"{CLASSIFIER}::test_a_model_without_noise_or_of_a_schema_from_the_rows_does_not_load_as_a_private_one",
    ),
    classifier(
        "not any(ledger.spent for ledger in ledgers):",
        "ledgers:",
        "what an interrupted fit has spent is forgotten",
        f"{HOLDER}::test_an_interrupted_fit_shows_what_was_spent_and_has_no_tree",
    ),
    # ---- Clocks, least prices, and how many releases there are
    desk(
        "least_price=self.least_price * self.epsilon,",
        "least_price=0 * self.epsilon,",
        "a release may cost next to nothing",
        CLOCK,
    ),
    desk(
        "            most_releases=self.most_releases,\n",
        "",
        "there may be any number of releases",
        CLOCK,
    ),
    desk(
        "self.queries, AnswerClock(self.quantum))",
        "self.queries)",
        "answers leave when they are ready",
        CLOCK,
    ),
    desk(
        "        self._looks_at_a_row = charged.looks_at_a_row\n",
        "",
        "many releases about one row have one quantum",
        CLOCK,
    ),
    Mutant(
        "holder/clock.py",
        "quantum = self.quantum * max(1, times)",
        "quantum = self.quantum",
        "many releases about one row have one quantum",
        (CLOCK,),
    ),
    Mutant(
        "holder/clock.py",
        'for _ in "ab")',
        'for _ in "a")',
        "an answer that ends at a whole quantum shows how long it took",
        (CLOCK,),
    ),
    Mutant(
        "holder/clock.py",
        "(math.floor(blurred) + 1)",
        "math.floor(blurred)",
        "an answer may leave before its quantum is over",
        (CLOCK,),
    ),
    holder(
        "considered.quote.releases_of_a_row + generations",
        "considered.quote.releases_of_a_row",
        "rows that are divided anew and anew have one quantum",
        CLOCK,
    ),
    Mutant(
        "holder/counts.py",
        "rows // 2 + 1 + secrets.randbelow(rows)",
        "rows",
        "one row more wakes a thread, every time",
        (CLOCK,),
    ),
    Mutant(
        "transport/site.py",
        "clock.hold_back(came, OPENING)",
        "pass",
        "opening a study shows how long its rows take to divide",
        (SITE,),
    ),
    Mutant(
        "transport/site.py",
        'parse_epsilon(greeting.get("least_price"))) < least:',
        'parse_epsilon(greeting.get("least_price"))) < 0:',
        "a study begins that will be refused when it has spent something",
        (SITE,),
    ),
    # ---- Who is let in, and what a site starts with
    certificates(
        "        if found.serial_number in revoked:", "        if False:", "a revoked site is let in"
    ),
    certificates(
        "        if issued.get(found.serial_number) != (holder, key):",
        "        if False:",
        "a certificate that was never issued lets a stranger in",
    ),
    certificates(
        "        if stamp != self._stamp():",
        "        if False:",
        "a revocation does not count in a study that runs",
    ),
    certificates(
        "            found.verify_directly_issued_by(self._authority)",
        "            pass",
        "any authority will do",
    ),
    certificates(
        "        if study != self._study or holder not in self._holders:",
        "        if holder not in self._holders:",
        "a certificate of another study is let in",
    ),
    certificates(
        "        if any(entry.key == key and entry.serial in revoked for entry in issued):",
        "        if False:",
        "a revoked key is signed again",
    ),
    certificates(
        "    if not replace and os.path.lexists(path) and (pinned := _read_certificate(path, PIN)) != found:",
        "    if False:",
        "another coordinator takes the pinned one's place without a word",
    ),
    Mutant(
        "transport/site_process.py",
        "    if unprotected and not seeded:",
        "    if False:",
        "a site starts with noise that can be taken off again",
        (PROCESS,),
    ),
    Mutant(
        "transport/site_process.py",
        '    if not path.is_file() or path.read_text(encoding="utf-8") != _mark(policy):',
        "    if not path.is_file():",
        "a site starts with a policy that its owner has not seen",
        (PROCESS,),
    ),
    Mutant(
        "transport/site_process.py",
        'f"{policy!r}{policy.schema.hash}"',
        'f"{policy.schema.hash}"',
        "what is granted may change unseen",
        (PROCESS,),
    ),
    Mutant(
        "transport/remote.py",
        "        if values.shape != shape_of(request.query, schema):",
        "        if False:",
        "a tree is grown from an answer to something else",
        (REMOTE,),
    ),
    Mutant(
        "transport/console_log.py",
        "hedgerow: {printable(text)}",
        "hedgerow: {text}",
        "a coordinator writes lines of its own into a holder's log",
        ("tests/transport/test_console_log.py",),
    ),
    # ---- Whose files they are, and what was counted a second time
    store(
        "            counter.difference(_total(database))  # refuses an older store\n",
        "",
        "a journal that was put back while a study is open forgets what was spent",
    ),
    store("                check_own(ours)\n", "                pass\n", "others may write to the journal"),
    store(
        "                counter.settle(prepared, total)",
        "                pass",
        "what was spent is not counted a second time",
    ),
    store("os.O_RDWR | os.O_EXCL", "os.O_RDWR", "who tries to open a study again loses its lock"),
    Mutant(
        "holder/counter.py",
        "self.bookings < other.bookings or self.spent < other.spent",
        "self.bookings < other.bookings and self.spent < other.spent",
        "an older journal with as many bookings is not noticed",
        (STORE,),
    ),
    Mutant(
        "holder/own_files.py",
        "if stat.S_ISLNK(found.st_mode):",
        "if not found.st_mode:",
        "a journal may be a link",
        (STORE,),
    ),
    Mutant(
        "holder/own_files.py",
        "if secret and found.st_mode & OTHERS_READ:",
        "if secret and not found.st_mode:",
        "others may read the key",
        (STORE,),
    ),
]
