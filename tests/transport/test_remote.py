"""The coordinator's network over a postman that loses letters, and holders that lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from study_files import Clock

from hedgerow import PrivateTreeClassifier
from hedgerow.datasets import synthetic_hospitals
from hedgerow.encoding import encode, encode_labels
from hedgerow.errors import HedgerowError, InvalidMessage, Refused
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
    Request,
    from_bytes,
    to_bytes,
)
from hedgerow.network.local import LocalNetwork
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SeededNoise
from hedgerow.transport import remote
from hedgerow.transport.answers import AnswerFile, StudyBusy, StudyChanged
from hedgerow.transport.frames import read_frame
from hedgerow.transport.remote import HolderLost, RemoteNetwork, Stopped
from hedgerow.transport.study import Study

HOLDERS = ("a", "b", "c")
EPSILON = Fraction(3)
HOSPITALS = synthetic_hospitals(3, rows=900, seed=2)
FORKS = NominateForks(np.array([0]), [], "exponential", [Fraction(1)], [Fraction(1)])


Lie = Callable[[Request, bytes], bytes]  # what somebody sends in the place of an answer


class Post:
    """Desks of three holders; `lose` decides which letters do not arrive, and the answer is lost with them.

    Who waits in vain waits as long as it said. From its third question on, `liar` sends what `lie` makes of its answers.
    """

    def __init__(
        self,
        lose: Callable[[int, str], bool] = lambda *_: False,
        liar: str = "",
        lie: Lie = lambda _, answer: answer,
    ) -> None:
        self.desks = {
            name: Desk("study", Holder(rows(i), SeededNoise(seed(i)), Ledger(EPSILON), 2**31 - 1))
            for i, name in enumerate(HOLDERS)
        }
        self.lose = lose
        self.liar = liar
        self.lie = lie
        self.delivered = 0
        self.tries = 0

    def __call__(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        self.tries += 1
        replies = {}
        for holder, frame in frames.items():
            if not self.lose(self.tries, holder):
                self.delivered += 1
                replies[holder] = self.desks[holder].handle(asked := read_frame(frame))
                if holder == self.liar and self.tries > 2:
                    replies[holder] = self.lie(from_bytes(asked), replies[holder])
        if len(replies) < len(frames):
            remote.time.sleep(seconds)
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
def _no_waiting(clock: Clock):
    return clock


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


# ---- A holder that is silent -----------------------------------------------------------------------------------------


def test_a_study_that_waits_gives_a_silent_holder_its_minutes_and_can_be_resumed(
    tmp_path: Path, clock: Clock
):
    wishes = {"answer_seconds": 10.0, "return_minutes": 2.0}
    post = Post(lambda attempt, holder: holder == "b" and attempt > 3)
    network = partial(RemoteNetwork, study(**wishes), post, connected=lambda _: False)
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(HolderLost) as error:
        learn(network(answers))
    assert error.value.holders == ("b",)
    assert str(error.value) == "no answer from b; the study can be resumed when they are back."
    assert 120 < clock.now <= 120 + remote.TRY_SECONDS + remote.RETRY_SECONDS
    post.lose = lambda *_: False
    with AnswerFile(tmp_path / "answers.log") as answers:
        assert learn(network(answers)) == reference()


def test_a_study_that_waits_goes_on_when_the_holder_is_back(tmp_path: Path, clock: Clock):
    post = Post(lambda attempt, holder: holder == "b" and 3 < attempt <= 20)
    with AnswerFile(tmp_path / "answers.log") as answers:
        network = RemoteNetwork(
            study(answer_seconds=10.0, return_minutes=2.0), post, answers, connected=lambda _: False
        )
        assert learn(network) == reference()
    assert clock.now > 10.0
    assert network.lost == {}


def test_a_study_that_aborts_stops_as_soon_as_a_silent_holder_is_not_connected(tmp_path: Path, clock: Clock):
    post = Post(lambda attempt, holder: holder == "b" and attempt > 3)
    wishes = {"when_a_holder_is_lost": "abort", "answer_seconds": 600.0}
    with (
        AnswerFile(tmp_path / "answers.log") as answers,
        pytest.raises(HolderLost, match="no answer from b;"),
    ):
        learn(RemoteNetwork(study(**wishes), post, answers, connected=lambda holder: holder != "b"))
    assert clock.now <= remote.TRY_SECONDS
    post.lose = lambda *_: False
    with AnswerFile(tmp_path / "answers.log") as answers:  # who answers, is connected: that is not asked for
        assert learn(RemoteNetwork(study(**wishes), post, answers, connected=lambda _: False)) == reference()


def test_a_study_that_aborts_gives_a_connected_holder_its_seconds(tmp_path: Path, clock: Clock):
    post = Post(lambda attempt, holder: holder == "b" and attempt > 3)
    wishes = {"when_a_holder_is_lost": "abort", "answer_seconds": 30.0, "return_minutes": 60.0}
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(HolderLost):
        learn(RemoteNetwork(study(**wishes), post, answers))
    assert 30 < clock.now <= 30 + remote.TRY_SECONDS + remote.RETRY_SECONDS


def test_a_study_that_goes_on_keeps_what_the_lost_holder_said(tmp_path: Path, clock: Clock):
    wishes = {"when_a_holder_is_lost": "continue", "answer_seconds": 30.0}
    post = Post(lambda attempt, holder: holder == "b" and attempt > 3)
    with AnswerFile(tmp_path / "answers.log") as answers:
        # Whoever has hung up may call again: it has as long as any other.
        network = RemoteNetwork(study(**wishes), post, answers, connected=lambda _: False)
        tree = learn(network)
        assert network.lost == {"b": "round-3"}
        assert network.n_holders == 2
    assert 30 < clock.now <= 30 + remote.TRY_SECONDS + remote.RETRY_SECONDS  # once, not in every round
    assert float(network.spent["b"]) < float(network.spent["a"])
    delivered = post.delivered
    with AnswerFile(tmp_path / "answers.log") as answers:  # and it is the same when it is resumed
        assert learn(RemoteNetwork(study(**wishes), post, answers)) == tree
    assert post.delivered == delivered


def test_a_study_does_not_go_on_without_anybody(tmp_path: Path):
    wishes = {"when_a_holder_is_lost": "continue", "answer_seconds": 30.0}
    post = Post(lambda *_: True)
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(HolderLost, match="from a, b, c;"):
        RemoteNetwork(study(**wishes), post, answers).ask(CountRows(np.array([0]), [Fraction(1)]))
    post.lose = lambda *_: False
    with AnswerFile(tmp_path / "answers.log") as answers:  # and nobody counts as lost
        assert answers.lost == {}
        assert learn(RemoteNetwork(study(**wishes), post, answers)) == reference()


def test_a_chooser_that_is_lost_is_replaced_and_nobody_pays_twice(tmp_path: Path):
    """Its own choice may have been charged at its ledger; the others are asked for theirs, and pay for those alone."""
    asked: list[tuple[str, str]] = []  # holder, kind of question

    class Choosers(Post):
        def __call__(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
            replies = super().__call__(frames, seconds)
            kinds = {h: type(from_bytes(read_frame(frame)).query).__name__ for h, frame in frames.items()}
            asked.extend(kinds.items())
            first = next((holder for holder, kind in asked if kind.startswith("Nominate")), None)
            remote.time.sleep(seconds if first in frames else 0.0)
            return {holder: reply for holder, reply in replies.items() if holder != first}

    changes = {"when_a_holder_is_lost": "continue", "answer_seconds": 30.0}
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
        def __call__(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
            replies = super().__call__(frames, seconds)
            remote.time.sleep(seconds if "b" in frames else 0.0)
            return {h: reply for h, reply in replies.items() if h != "b" or self.tries < 3}

    post = Half()
    changes = {"when_a_holder_is_lost": "continue", "answer_seconds": 30.0}
    for _ in range(2):  # and so by a coordinator that begins again
        with AnswerFile(tmp_path / "answers.log") as answers:
            network = RemoteNetwork(study(**changes), post, answers)
            learn(network)
        assert network.lost.keys() == {"b"}
        for holder, desk in post.desks.items():
            assert network.ledgers[holder].spent == desk.holder.ledger.spent


def test_a_study_that_is_stopped_says_so(tmp_path: Path):
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(Stopped):
        learn(RemoteNetwork(study(), Post(), answers, stopped=lambda: True))


# ---- A holder that lies, or refuses ----------------------------------------------------------------------------------


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


def nominate_a_split_that_is_not_there(request: Request, honest: bytes) -> bytes:
    answer = from_bytes(honest)
    if not isinstance(request.query, Nominate):
        return honest
    values = answer.values.copy()
    values.reshape(len(values), -1)[:, 0] = len(HOSPITALS.schema.splits)
    return to_bytes(replace(answer, values=values))


LIES: dict[str, tuple[Lie, type[HedgerowError], str]] = {
    "shape": (
        lambda _, honest: to_bytes(replace(from_bytes(honest), values=np.zeros((1, 1), dtype=np.int64))),
        InvalidMessage,
        r"b answered round-\d in another shape than asked for\.",
    ),
    "name": (
        lambda _, honest: to_bytes(replace(from_bytes(honest), identifier="round-0")),
        InvalidMessage,
        r"b sent something else than the answer to round-\d\.",
    ),
    "study": (
        lambda _, honest: to_bytes(replace(from_bytes(honest), study="other")),
        InvalidMessage,
        "b sent something else",
    ),
    "question": (lambda request, _: to_bytes(request), InvalidMessage, "b sent something else"),
    "nominee": (
        nominate_a_split_that_is_not_there,
        InvalidMessage,
        r"b nominated a split that is not in the schema\.",
    ),
    "bytes": (lambda *_: b"\x91" * 1000, InvalidMessage, "b sent something else than a message"),
    "nothing": (lambda *_: b"", InvalidMessage, "b sent something else than a message"),
    "refusal": (
        lambda request, _: to_bytes(Refusal(request.study, request.identifier, "no")),
        Refused,
        "b refuses: no",
    ),
    "failure": (lambda *_: to_bytes(Refusal("unknown", "unknown", "no")), Refused, "b refuses: no"),
}


@pytest.mark.parametrize("kind", LIES)
def test_a_study_goes_on_without_a_holder_that_lies_or_refuses(tmp_path: Path, clock: Clock, kind: str):
    wishes = {"when_a_holder_is_lost": "continue"}
    post = Post(liar="b", lie=LIES[kind][0])
    for _ in range(2):  # and so when it is resumed
        with AnswerFile(tmp_path / "answers.log") as answers:
            network = RemoteNetwork(study(**wishes), post, answers)
            tree = learn(network)
        assert network.lost.keys() == {"b"}
        assert network.lost["b"] >= "round-2"
        assert network.n_holders == 2
        assert tree.n_splits > 1
        # It was charged for the question that it gave no answer to.
        for holder, desk in post.desks.items():
            assert network.ledgers[holder].spent == desk.holder.ledger.spent <= EPSILON
    assert clock.now == 0.0  # nobody was waited for


@pytest.mark.parametrize("policy", ["wait", "abort"])
@pytest.mark.parametrize("kind", LIES)
def test_a_lie_or_a_refusal_stops_a_study_that_does_not_go_on_and_it_can_be_resumed(
    tmp_path: Path, clock: Clock, kind: str, policy: str
):
    lie, error, told = LIES[kind]
    post = Post(liar="b", lie=lie)
    network = partial(RemoteNetwork, study(when_a_holder_is_lost=policy), post)
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(error, match=told):
        learn(network(answers))
    assert clock.now == 0.0
    post.liar = ""
    with AnswerFile(tmp_path / "answers.log") as answers:
        assert learn(network(answers)) == reference()


def test_a_study_that_everybody_refuses_stops_and_nobody_counts_as_lost(tmp_path: Path):
    wishes = {"when_a_holder_is_lost": "continue"}
    refusal = to_bytes(Refusal("study", "round-0", "no"))
    with AnswerFile(tmp_path / "answers.log") as answers:
        network = RemoteNetwork(study(**wishes), lambda frames, _: dict.fromkeys(frames, refusal), answers)
        with pytest.raises(Refused, match="a refuses: no"):
            network.ask(CountRows(np.array([0]), [Fraction(1)]))
    with AnswerFile(tmp_path / "answers.log") as answers:
        assert answers.lost == {}
        assert learn(RemoteNetwork(study(**wishes), Post(), answers)) == reference()


def test_what_a_holder_says_of_a_refusal_does_not_move_the_coordinators_cursor(tmp_path: Path):
    lie = to_bytes(Refusal("study", "round-0", "\x1b[2J\nb refuses: all\u202e"))
    with AnswerFile(tmp_path / "answers.log") as answers, pytest.raises(Refused) as error:
        RemoteNetwork(study(), lambda *_: {"a": lie}, answers).ask(CountRows(np.array([0]), [Fraction(1)]))
    assert str(error.value) == r"a refuses: \x1b[2J\nb refuses: all\u202e"


def test_what_the_honest_have_said_is_kept_when_another_holder_lies(tmp_path: Path):
    post = Post(liar="a", lie=LIES["name"][0])
    query = CountRows(np.array([0]), [Fraction(1)])
    with AnswerFile(tmp_path / "answers.log") as answers:
        network = RemoteNetwork(study(), post, answers)
        network.ask(query)
        network.ask(query)
        with pytest.raises(InvalidMessage):
            network.ask(query)
    post.liar = ""
    delivered = post.delivered
    with AnswerFile(tmp_path / "answers.log") as answers:
        network = RemoteNetwork(study(), post, answers)
        for _ in range(3):
            network.ask(query)
    assert post.delivered == delivered + 1
