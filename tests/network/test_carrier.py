"""The coordinator's network over a postman that loses letters. No FLARE needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hedgerow import PrivateTreeClassifier
from hedgerow.datasets import synthetic_hospitals
from hedgerow.encoding import encode, encode_labels
from hedgerow.errors import InvalidMessage, Refused
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.desk import Desk
from hedgerow.holder.holder import Holder
from hedgerow.learner.coordinator import Coordinator
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.messages import (
    Answer,
    CountRows,
    Grow,
    Nominate,
    NominateAndCount,
    NominateForks,
    Refusal,
    from_bytes,
    to_bytes,
)
from hedgerow.network.local import LocalNetwork
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SeededNoise
from hedgerow.transport import remote as carrier
from hedgerow.transport.answers import AnswerFile, StudyBusy, StudyChanged
from hedgerow.transport.remote import HolderLost, RemoteNetwork, Stopped
from hedgerow.transport.study import Study

HOLDERS = ("a", "b", "c")
EPSILON = Fraction(3)
HOSPITALS = synthetic_hospitals(3, rows=900, seed=2)
FORKS = NominateForks(np.array([0]), [], "exponential", [Fraction(1)], [Fraction(1)])


class Post:
    """Desks of three holders; `lose` decides which letters do not arrive, and the answer is lost with them."""

    def __init__(self, lose: Callable[[int, str], bool] = lambda *_: False) -> None:
        self.desks = {
            name: Desk("study", Holder(rows(i), SeededNoise(seed(i)), Ledger(EPSILON), 2**31 - 1))
            for i, name in enumerate(HOLDERS)
        }
        self.lose = lose
        self.delivered = 0
        self.tries = 0

    def __call__(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        self.tries += 1
        replies = {}
        for holder, data in requests.items():
            if not self.lose(self.tries, holder):
                self.delivered += 1
                replies[holder] = self.desks[holder].handle(data)
        return replies


def rows(i: int) -> GroupedRows:
    table, labels = HOSPITALS.holders[i]
    schema = HOSPITALS.schema
    return GroupedRows(encode(table, schema), encode_labels(labels, schema), schema)


def seed(i: int) -> int:
    return int(np.random.SeedSequence([7, i]).generate_state(1, np.uint64)[0])


def study(**changes) -> Study:
    return Study(
        **({"name": "study", "schema": HOSPITALS.schema, "epsilon": 3.0, "holders": HOLDERS} | changes),
        server="localhost",
        max_splits=8,
    )


def learn(network: RemoteNetwork):
    plan = make_plan(HOSPITALS.schema, Wishes(EPSILON, n_holders=3, max_splits=8))
    return Coordinator(network).learn(HOSPITALS.schema, plan)[0]


def reference():
    model = PrivateTreeClassifier(schema=HOSPITALS.schema, epsilon=3.0, max_splits=8, noise_seed=7)
    return model.fit_holders(HOSPITALS.holders).tree_


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(carrier, "RETRY_SECONDS", 0.0)


def test_lost_letters_are_sent_again_and_change_nothing(tmp_path: Path):
    post = Post(lambda attempt, holder: (attempt + ord(holder)) % 3 == 0)
    with AnswerFile(tmp_path / "answers.log") as answers:
        network = RemoteNetwork(study(), post, answers)
        assert learn(network) == reference()
    assert post.tries > network.traffic.rounds
    spent = {name: f"{float(desk.holder.ledger.spent):.6g}" for name, desk in post.desks.items()}
    assert spent == network.spent


def test_holders_are_asked_for_the_decimal_that_was_written(tmp_path: Path):
    with AnswerFile(tmp_path / "answers.log") as answers:
        network = RemoteNetwork(study(epsilon=0.3), Post(), answers)
    assert {ledger.grant for ledger in network.ledgers.values()} == {Fraction(3, 10)}


def test_a_second_coordinator_asks_nothing_that_is_on_disk(tmp_path: Path):
    post = Post()
    with AnswerFile(tmp_path / "answers.log") as answers:
        first = learn(RemoteNetwork(study(), post, answers))
    delivered = post.delivered
    with AnswerFile(tmp_path / "answers.log") as answers:
        network = RemoteNetwork(study(), post, answers)
        assert learn(network) == first
    assert post.delivered == delivered


def test_a_resumed_study_has_the_traffic_of_an_undisturbed_one(tmp_path: Path):
    with AnswerFile(tmp_path / "undisturbed.log") as answers:
        undisturbed = RemoteNetwork(study(), Post(), answers)
        learn(undisturbed)
    post = Post()
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(KeyboardInterrupt):
        learn(RemoteNetwork(study(), dying(post, 4), answers))
    with AnswerFile(tmp_path / "answers.log") as answers:
        resumed = RemoteNetwork(study(), post, answers)
        learn(resumed)
    assert resumed.traffic == undisturbed.traffic


def test_announcements_add_up_until_the_next_question(tmp_path: Path):
    with AnswerFile(tmp_path / "answers.log") as answers:
        local = LocalNetwork([desk.holder for desk in Post().desks.values()])
        told = []
        for network in (local, RemoteNetwork(study(), Post(), answers)):
            for node, children in ((0, [1, 2]), (1, [3, 4]), (2, [5, 6])):
                network.announce(Grow(np.array([node]), np.array([3 + node]), children[0]))
                if node == 0:
                    network.ask(CountRows(np.array(children), [Fraction(1)] * 2))
            # A holder that had heard of the last announcement only would refuse: it would know no such nodes.
            told.append(
                [a.tolist() for a in network.ask(CountRows(np.array([3, 4, 5, 6]), [Fraction(1)] * 4))]
            )
    assert told[0] == told[1]
    assert len(told[0][0]) == 4


def test_a_coordinator_that_is_killed_anywhere_goes_on_to_the_same_tree(tmp_path: Path):
    post = Post()
    expected = reference()
    for die in (1, 3, 5):
        with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(KeyboardInterrupt):
            learn(RemoteNetwork(study(), dying(post, die), answers))
        cut(tmp_path / "answers.log", 5)  # the last record was not written as a whole
    with AnswerFile(tmp_path / "answers.log") as answers:
        assert learn(RemoteNetwork(study(), post, answers)) == expected
    assert all(desk.holder.ledger.spent <= EPSILON for desk in post.desks.values())


def dying(post: Post, after: int):
    def send(requests, seconds):
        if post.tries >= after:
            raise KeyboardInterrupt
        return post(requests, seconds)

    return send


def cut(path: Path, n: int) -> None:
    if path.stat().st_size > 200:
        path.write_bytes(path.read_bytes()[:-n])


def test_two_coordinators_of_one_study_do_not_work_at_once(tmp_path: Path):
    with AnswerFile(tmp_path / "answers.log"), pytest.raises(StudyBusy):
        AnswerFile(tmp_path / "answers.log")


def test_a_study_resumed_with_other_parameters_is_refused(tmp_path: Path):
    with AnswerFile(tmp_path / "answers.log") as answers:
        learn(RemoteNetwork(study(), Post(), answers))
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(StudyChanged, match="another name"):
        RemoteNetwork(study(), Post(), answers).ask(CountRows(np.array([0]), [Fraction(1)]))


def test_a_study_that_waits_stops_when_a_holder_is_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(carrier, "UNREACHABLE_SECONDS", 0.05)
    post = Post(lambda attempt, holder: holder == "b" and attempt > 3)
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(HolderLost) as error:
        learn(RemoteNetwork(study(), post, answers))
    assert error.value.holders == ("b",)


def test_a_study_that_goes_on_keeps_what_the_lost_holder_said(tmp_path: Path):
    wishes = {"when_a_holder_is_lost": "continue", "answer_seconds": 0.05}
    post = Post(lambda attempt, holder: holder == "b" and attempt > 3)
    with AnswerFile(tmp_path / "answers.log") as answers:
        network = RemoteNetwork(study(**wishes), post, answers)
        tree = learn(network)
        assert network.lost == {"b": "round-3"}
        assert network.n_holders == 2
    assert float(network.spent["b"]) < float(network.spent["a"])
    delivered = post.delivered
    with AnswerFile(tmp_path / "answers.log") as answers:  # and it is the same when it is resumed
        assert learn(RemoteNetwork(study(**wishes), post, answers)) == tree
    assert post.delivered == delivered


def test_a_chooser_that_is_lost_is_replaced_and_nobody_pays_twice(tmp_path: Path):
    """Its own choice may have been charged at its ledger; the others are asked for theirs, and pay for those alone."""
    asked: list[tuple[str, str]] = []  # holder, kind of question

    class Choosers(Post):
        def __call__(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
            replies = super().__call__(requests, seconds)
            kinds = {holder: type(from_bytes(data).query).__name__ for holder, data in requests.items()}
            asked.extend(kinds.items())
            first = next((holder for holder, kind in asked if kind.startswith("Nominate")), None)
            return {holder: reply for holder, reply in replies.items() if holder != first}

    changes = {"when_a_holder_is_lost": "continue", "answer_seconds": 0.05}
    with AnswerFile(tmp_path / "answers.log") as answers:
        network = RemoteNetwork(study(**changes), Choosers(), answers)
        tree = learn(network)
    [lost] = network.lost
    choosers = [holder for holder, kind in asked if kind.startswith("Nominate")]
    assert choosers[0] == lost
    assert set(choosers) - {lost}
    assert tree.n_splits > 1
    for holder, ledger in network.ledgers.items():
        assert ledger.spent == network._send.desks[holder].holder.ledger.spent <= EPSILON
    assert float(network.spent[lost]) < min(float(s) for h, s in network.spent.items() if h != lost)


def test_holders_are_asked_different_questions_in_one_round(tmp_path: Path):
    """What was announced reaches each holder with its own next question, not with somebody else's."""
    told = []
    with AnswerFile(tmp_path / "answers.log") as answers:
        local = LocalNetwork([desk.holder for desk in Post().desks.values()])
        for network in (local, RemoteNetwork(study(), Post(), answers)):
            network.announce(Grow(np.array([0]), np.array([3]), 1))
            first = network.ask_each({1: CountRows(np.array([1]), [Fraction(1)])})
            network.announce(Grow(np.array([1]), np.array([4]), 3))
            second = network.ask_each(
                {
                    2: CountRows(np.array([3, 4]), [Fraction(1)] * 2),
                    1: CountRows(np.array([2, 3, 4]), [Fraction(1)] * 3),
                }
            )
            assert [*first, *second] == [1, 2, 1]
            assert network.traffic.rounds == 2
            told.append([answer.tolist() for answer in (*first.values(), *second.values())])
    assert told[0] == told[1]


def test_a_lost_holder_is_booked_for_the_question_that_it_was_lost_over(tmp_path: Path):
    """It was charged, and its answer did not arrive."""

    class Half(Post):
        def __call__(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
            replies = super().__call__(requests, seconds)
            return {h: reply for h, reply in replies.items() if h != "b" or self.tries < 3}

    post = Half()
    changes = {"when_a_holder_is_lost": "continue"}
    for _ in range(2):  # and so by a coordinator that begins again
        with AnswerFile(tmp_path / "answers.log") as answers:
            network = RemoteNetwork(study(**changes), post, answers, gone=lambda holder: holder == "b")
            learn(network)
        assert network.lost.keys() == {"b"}
        for holder, desk in post.desks.items():
            assert network.ledgers[holder].spent == desk.holder.ledger.spent


def test_a_holder_whose_process_has_ended_is_not_waited_for(tmp_path: Path):
    post = Post(lambda _, holder: holder == "b")
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(HolderLost):
        learn(RemoteNetwork(study(), post, answers, gone=lambda holder: holder == "b"))


def test_a_study_that_is_stopped_says_so(tmp_path: Path):
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(Stopped):
        learn(RemoteNetwork(study(), Post(), answers, stopped=lambda: True))


@pytest.mark.parametrize(
    ("values", "query", "told"),
    [
        (np.zeros((2, 1), dtype=np.int64), CountRows(np.array([0]), [Fraction(1)]), "another shape"),
        (
            np.array([10**6]),
            Nominate(np.array([0]), [], "permute_and_flip", [Fraction(1)]),
            "not in the schema",
        ),
        (
            np.array([[10**6, 1, 2, 3, 4]]),
            NominateAndCount(np.array([0]), [], "permute_and_flip", [Fraction(1)], [Fraction(1)]),
            "not in the schema",
        ),
        (np.array([[0, 1, 10**6, *[1] * 8]]), FORKS, "not in the schema"),
        (np.array([[0, -2, 1, *[1] * 8]]), FORKS, "not in the schema"),
        (np.array([[-1, 1, 1, *[1] * 8]]), FORKS, "not in the schema"),
        (np.array([-1]), Nominate(np.array([0]), [], "permute_and_flip", [Fraction(1)]), "not in the schema"),
    ],
)
def test_an_answer_to_something_else_is_not_computed_with(tmp_path: Path, values, query, told: str):
    def send(requests, seconds):
        return {holder: to_bytes(Answer("study", "round-0", values)) for holder in requests}

    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(InvalidMessage, match=told):
        RemoteNetwork(study(), send, answers).ask(query)


def test_a_refusal_names_the_holder_and_is_not_stored(tmp_path: Path):
    def send(requests, seconds):
        return {holder: to_bytes(Refusal("study", "round-0", "no")) for holder in requests}

    with AnswerFile(tmp_path / "answers.log") as answers:
        network = RemoteNetwork(study(), send, answers)
        with pytest.raises(Refused, match="a refuses: no"):
            network.ask(CountRows(np.array([0]), [Fraction(1)]))
        assert answers.find("round-0", "a", b"") is None
