"""The quick audit suite finds nothing above the claims, and would if there were something to find.

That any audit of the suite alarms falsely has probability at most 1e-6. Selections and counts are seeded;
whole fits draw cryptographic noise, as users' fits do.
"""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

from hedgerow import cli
from hedgerow.audits import (
    EPSILONS,
    FALSE_ALARM,
    Audit,
    Counting,
    Finding,
    Fitting,
    Forking,
    Selection,
    catalogue,
    run_suite,
    suite,
)
from hedgerow.criteria import Criterion, score_sensitivity
from hedgerow.privacy.audit import AuditResult, Event, suite_confidence
from hedgerow.privacy.selectors import SELECTORS

ONE = Fraction(1)
WORST = catalogue()[0]
[MOST_FALL] = [pair for pair in catalogue() if "1 of 10 candidates stays" in pair.name]


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    return run_suite("quick")


def test_no_lower_bound_exceeds_its_claim(findings: list[Finding]) -> None:
    assert [str(finding.result) for finding in findings if finding.exceeds] == []


def test_the_false_alarms_of_a_suite_add_up_to_one_in_a_million(findings: list[Finding]) -> None:
    assert sum(1 - finding.result.confidence for finding in findings) <= FALSE_ALARM * (1 + 1e-6)


def test_counts_are_found_to_cost_more_than_half_of_their_claim(findings: list[Finding]) -> None:
    bounds = [f.result.lower_bound for f in findings if f.audit.mechanism.name == "class counts of the root"]
    assert min(bounds) > 0.5


@pytest.mark.parametrize("criterion", Criterion)
@pytest.mark.parametrize("selector", SELECTORS)
def test_the_worst_neighbours_cost_most_of_what_a_selector_claims(
    selector: str, criterion: Criterion
) -> None:
    """So the noise is not much larger than it must be, nor the auditor blind: exact losses are about 0.8."""
    confidence = suite_confidence(len(SELECTORS) * len(Criterion))
    found = Audit(Selection(selector, criterion), WORST, ONE).run(40_000, confidence, seed=5)
    assert 0.6 < found.result.lower_bound <= ONE


@pytest.mark.parametrize("criterion", [Criterion.gini, Criterion.entropy, Criterion.error])
def test_the_worst_neighbours_cost_most_of_what_a_fork_claims(criterion: Criterion) -> None:
    """All forks but those with one of ten splits fall: exact losses are about 0.7."""
    found = Audit(Forking(criterion), MOST_FALL, ONE).run(40_000, suite_confidence(3), seed=5)
    assert 0.5 < found.result.lower_bound <= ONE


def test_seeded_fits_are_found_to_cost_something_and_no_more_than_secure_ones() -> None:
    """A simulation must draw from the distribution that it stands for.

    Two releases made with the same seeded noise at two scales would be told apart here, at a bound above 2.
    """
    audit = Audit(Fitting(seeded=True), WORST, ONE)
    assert 0.3 < audit.run(3_000, suite_confidence(1)).result.lower_bound <= ONE


def test_the_catalogue_consists_of_neighbours() -> None:
    for pair in catalogue():
        (first, first_labels), (second, second_labels) = pair.sides
        differ = 1 if pair.replaced is None else 0
        assert second.n_rows - first.n_rows == len(second_labels) - len(first_labels) == differ
        shared = len(pair.table)
        assert np.array_equal(first.narrow[:shared], second.narrow[:shared])
        assert np.array_equal(first_labels[:shared], second_labels[:shared])
        assert second.n_rows <= pair.max_rows
    assert len({pair.name for pair in catalogue()}) == len(catalogue())


def test_the_full_suite_has_every_selector_criterion_and_epsilon() -> None:
    audits = suite("full")
    selections = {
        (a.mechanism.selector, a.mechanism.criterion, a.epsilon)
        for a in audits
        if isinstance(a.mechanism, Selection)
    }
    assert len(selections) == len(SELECTORS) * len(Criterion) * len(EPSILONS)
    forks = {(a.mechanism.criterion, a.epsilon) for a in audits if isinstance(a.mechanism, Forking)}
    assert len(forks) == len(Criterion) * len(EPSILONS)
    fits = {(a.mechanism, a.epsilon) for a in audits if isinstance(a.mechanism, Fitting)}
    assert {fit.selector for fit, _ in fits} == {"auto", *SELECTORS}
    assert {"auto", "select", "paper"} <= {fit.method for fit, _ in fits}
    with pytest.raises(ValueError, match="level='slow'"):
        suite("slow")


def test_no_selection_or_count_of_the_full_suite_is_found_to_exceed_its_claim() -> None:
    """With 400 runs, of counts 100: few, but an answer without noise shows at epsilon 0.1."""
    audits = [audit for audit in suite("full") if isinstance(audit.mechanism, Selection | Forking | Counting)]
    findings = [audit.run(400, suite_confidence(len(audits))) for audit in audits]
    assert [finding.to_dict() for finding in findings if finding.exceeds] == []


@pytest.mark.parametrize("mechanism", [Selection("exponential", Criterion.gini), Forking(Criterion.gini)])
def test_an_audit_can_be_repeated(mechanism: Selection | Forking) -> None:
    """To the last of 2,000 outcomes: no two threads read the same words."""
    first, again = (mechanism.outcomes(MOST_FALL, 0, ONE, 2_000, seed=3) for _ in range(2))
    assert first == again


def test_the_findings_do_not_depend_on_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    few = suite("quick")[:3]
    monkeypatch.setattr("hedgerow.audits.suite", lambda level: few)
    alone, together = (run_suite("quick", runs=400, jobs=jobs) for jobs in (1, 2))
    assert [f.result.hits for f in alone] == [f.result.hits for f in together]


# ---- The command -----------------------------------------------------------------------------------------------


def made_up_finding(bound: float) -> Finding:
    audit = Audit(Selection("exponential", Criterion.gini), WORST, ONE)
    return Finding(audit, AuditResult(bound, Event((), 0), (1, 0), 10, 0.99, 20))


@pytest.mark.parametrize(("bound", "code"), [(0.9, 0), (1.1, 1)])
def test_the_command_fails_if_a_bound_exceeds_its_claim(
    monkeypatch: pytest.MonkeyPatch, bound: float, code: int
) -> None:
    monkeypatch.setattr("hedgerow.audits.run_suite", lambda *_, **__: [made_up_finding(bound)])
    result = CliRunner().invoke(cli.app, ["audit", "--quick"])
    assert result.exit_code == code
    assert ("COSTS MORE" in result.stdout.replace("\n", " ")) == (code == 1)


def test_the_command_prints_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hedgerow.audits.run_suite", lambda *_, **__: [made_up_finding(0.5)])
    result = CliRunner().invoke(cli.app, ["audit", "--json"])
    [finding] = json.loads(result.stdout)
    assert (finding["claimed"], finding["lower_bound"], finding["exceeds"]) == (1.0, 0.5, False)


@pytest.mark.parametrize("criterion", Criterion)
def test_half_the_sensitivity_at_the_holder_is_found(
    criterion: Criterion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exact losses are about twice those above."""
    monkeypatch.setattr(
        "hedgerow.holder.holder.score_sensitivity", lambda *facts: score_sensitivity(*facts) // 2
    )
    found = Audit(Selection("permute_and_flip", criterion), WORST, ONE).run(20_000, 1 - 1e-6, seed=5)
    assert found.result.lower_bound > 1.1


def test_half_the_sensitivity_of_forks_at_the_holder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hedgerow.holder.holder.score_sensitivity", lambda *facts: score_sensitivity(*facts) // 2
    )
    found = Audit(Forking(Criterion.gini), MOST_FALL, ONE).run(40_000, 1 - 1e-6, seed=5)
    assert found.result.lower_bound > ONE
