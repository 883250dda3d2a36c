"""Sentences about a study: which rows are better, which are cheaper, and what its runs did not achieve."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seedbus.agents.feature import bases
from seedbus.bus.text import counted, printable
from seedbus.scenarios.reporting.axes import byte_unit, is_share
from seedbus.scenarios.reporting.terminal import shown
from seedbus.scenarios.schema.amounts import cost_of, words_of
from seedbus.studies.analysis.quantities import quantity
from seedbus.studies.study.cells import Plan
from seedbus.studies.study.claims import FINAL, chance, in_words
from seedbus.studies.study.interactions import interactions
from seedbus.studies.study.intervals import Difference, by_chance
from seedbus.studies.study.published import published
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.trials import in_words as values_in_words

MAX_SENTENCES = 20
MAX_CIRCUMSTANCES = 12  # of which the differences are told


def sentences(results: StudyResults) -> list[str]:
    """Return what can be said about pairs of rows, about values at the edge of their grid, and about failed runs.

    Each is one line that is safe to print.
    """
    metric, found = shown(results.metric), _unfinished_trials(results) + _claim(results)
    for figure, pairs in results.compared_by.items():
        if figure == FINAL:
            found += _compared(results, "average at the end", pairs)
        elif figure.startswith("at_"):
            where = f"at {words_of(figure.removeprefix('at_'))}"
            found += _compared(results, where, pairs) + _measured(results, figure, where)
        else:
            found += _compared(results, shown(quantity(figure).words), pairs)
    found += _survival(results)
    found += [_divergence(results, row) for row in results.diverged]
    found += _remarks(results)
    found += _beyond_rule(results) + _chosen_in_vain(results)
    found += _fronts(results, metric) + _chosen(results, metric)
    found += _gaps(results) + _tied(results) + _unequal_trials(results)
    found += [
        f"{shown(row)}, seed {member.seed}: `verify` found replicas that hold other bits"
        for row, members in results.members.items()
        for member in members
        if member.run.results is not None and "diverged" in member.run.results.summary["refusals"]
    ]
    if "epsilon" in results.figures:
        found += map(shown, bases({cell.name: cell.scenario for cell in results.plan.cells}))
    found += published(results.plan.study.published)[1]
    found += [f"note: {note}" for note in notes(results.plan)]
    found += [f"failed: {failure}" for failure in results.failures]
    return [printable(sentence, len(sentence)) for sentence in found]


def _fronts(results: StudyResults, metric: str) -> list[str]:
    """Return which rows nothing beats in the metric and in bytes, by circumstances."""
    found = []
    for where, front in results.fronts.items():
        called = results.circumstances.get(where, {})
        named = "; ".join(shown(called.get(row, row)) for row in front)
        found.append(f"Pareto front of {metric} against bytes{f', {shown(where)}' if where else ''}: {named}")
    if results.beside_front:
        rows = "; ".join(map(shown, results.beside_front))
        which = "the front" if len(results.fronts) == 1 else "its front"
        found.append(f"not seen to be worse than a row of {which}, with equal bytes or fewer: {rows}")
    return found


def _chosen(results: StudyResults, metric: str) -> list[str]:
    """Return what is to be known of the values that trials chose."""
    found = []
    for row, tuned in results.tuned.items():
        found += [
            f"{shown(row)}: {path} {tuned.chosen[path]} is at the edge of what was tried "
            f"({len(tuned.trials)} values); a better one may lie beyond it"
            for path in tuned.at_edge
        ]
        if not tuned.chosen and row not in results.untried:
            found.append(f"{shown(row)}: nothing could be chosen, because no trial has a finite {metric}")
    if results.tuned and len(results.circumstances) > 1:
        found.append("each row has the values that its own trials chose, which were made under its own circumstances")
    return found


def notes(plan: Plan) -> list[str]:
    """Return what the reader is to know of the rows' settings, each sentence once, with the rows that it is about."""
    found = []
    for sentence, rows in plan.caveats.items():
        which = "all rows" if len(rows) == len(plan.cells) else some(rows)
        found.append(f"{shown(sentence)} ({which})")
    return found


def _compared(results: StudyResults, where: str, pairs: list[tuple[str, str, Difference]]) -> list[str]:
    """Return what can be said about pairs of rows; nothing without pairs.

    Args:
        results: the study's.
        where: at which time of a run they are compared, or over which clients.
        pairs: with their differences.
    """
    if not pairs:
        return []
    found = [f"Differences in {shown(results.metric)} ({where}), {_intervals(results, pairs)}:"]
    parts = _by_circumstances(results, pairs)
    for words, members in list(parts.items())[:MAX_CIRCUMSTANCES]:
        begin = f"{shown(words)}: " if words else ""
        seen = sorted((each for each in members if each[2].is_seen), key=lambda each: -abs(each[2].mean))
        found += [f"{begin}{_verdict(results, *each)}" for each in seen[:MAX_SENTENCES]]
        if len(seen) > MAX_SENTENCES:
            found.append(f"{begin}and {len(seen) - MAX_SENTENCES:,} more pairs differ (differences.csv)")
        found += [f"{begin}{sentence}" for sentence in _unseen(results, members)]
    left = [f"{shown(words)} ({len(members):,})" for words, members in list(parts.items())[MAX_CIRCUMSTANCES:]]
    return [*found, f"and pairs under more circumstances (differences.csv): {'; '.join(left)}"] if left else found


def _survival(results: StudyResults) -> list[str]:
    """Return what circumstances cost each row, and which of two rows they cost more; nothing under the same ones."""
    sign, changes = -1 if results.is_rising else 1, interactions(results)
    told: dict[str, list[str]] = {}
    if results.plan.study.ask.against in results.circumstances:  # the differences of these rows are told already
        changes = [each for each in changes if each.other]
    for row, other, under, _, each in changes:
        ends = sorted((sign * each.low, sign * each.high))
        if other and each.is_seen:
            more, less = (row, other) if ends[0] > 0 else (other, row)
            amount = _with_interval(results, abs(each.mean), *sorted(map(abs, ends)))
            begin, said = f"{shown(under)} costs {shown(more)} more than {shown(less)}", f"by {amount}"
        else:
            begin = f"{each.verdict}, what {shown(under)} costs more" if other else f"{shown(under)} costs"
            rows = f"{shown(row)} − {shown(other)} =" if other else shown(row)
            said = f"{rows} {_with_interval(results, sign * each.mean, *ends)}"
        told.setdefault(begin + (":" if other and not each.is_seen else ""), []).append(said)
    if not told:
        return []
    pairs = [(row, other, each) for row, other, _, _, each in changes if other]
    how = f", {_intervals(results, pairs)}" if pairs else ""
    found = [f"{begin} {'; '.join(each[:MAX_SENTENCES])}" for begin, each in told.items()]
    rest = [f"and {len(found) - MAX_SENTENCES:,} more (interactions.csv)"] if found[MAX_SENTENCES:] else []
    return [f"Lost in {shown(results.metric)} (average at the end) against {shown(changes[0].against)}{how}:",
            *found[:MAX_SENTENCES], *rest]  # fmt: skip


def _intervals(results: StudyResults, pairs: list[tuple[str, str, Difference]]) -> str:
    """Return how sure the intervals of pairs are; those of one seed have none."""
    ask, count = results.plan.study.ask, sum(each.seeds > 1 for _, _, each in pairs)
    if not count:
        return "of one seed, so without intervals"
    together = f"{100 * ask.confidence:.6g}% together"
    level = together if ask.together else f"{by_chance(count, ask.confidence)} may seem to differ by chance"
    return f"paired over seeds; {counted(count, 'pair')} at {level}"


def _by_circumstances(
    results: StudyResults, pairs: list[tuple[str, str, Difference]]
) -> dict[str, list[tuple[str, str, Difference]]]:
    """Return circumstances, in words → the pairs under them, of rows as they are called there.

    Pairs under different ones, as `ask.against` may ask for, stand under "" with the names of their rows.
    """
    parts: dict[str, list[tuple[str, str, Difference]]] = {}
    where = {row: words for words, members in results.circumstances.items() for row in members}
    for row, other, each in pairs:
        words = where[row] if where[row] == where[other] else ""
        called = results.circumstances.get(words, {})
        parts.setdefault(words, []).append((called.get(row, row), called.get(other, other), each))
    return parts


def _measured(results: StudyResults, figure: str, where: str) -> list[str]:
    """Return which rows have no value at an amount of bytes or a time, and how early another's was measured."""
    cost, _ = cost_of(figure.removeprefix("at_"))
    compared = {row: runs for row, runs in results.members.items() if row not in results.diverged}
    lacking = [row for row, runs in compared.items() if any(member.figures[figure] is None for member in runs)]
    found = [f"not every run has a value {where}: {'; '.join(map(shown, lacking))}"] if lacking else []
    spent = [
        (member.figures[f"{figure}_{cost}"] or 0.0, row)
        for row, runs in compared.items()
        if row not in lacking
        for member in runs
    ]
    if spent:
        least, row = min(spent)
        unit, name = byte_unit(least) if cost == "bytes" else (1, "s")
        earliest = f"{shown(row)}'s at {least / unit:,.{0 if name == 'B' else 2}f} {name} is the earliest"
        found.append(f"a value {where} is that of the last evaluation before; {earliest}")
    return found


def _claim(results: StudyResults) -> list[str]:
    """Return the claim with its verdict, and what was found of each expectation; nothing without a claim."""
    study = results.plan.study
    if not study.claim:
        return []
    source = f" ({study.source})" if study.source else ""
    found = [f"Claim{source}: {study.claim}: {in_words(results.verdicts)}"]
    if study.unpublished:
        found.append(f"what is published does not give it: {study.unpublished}")
    found += [*map(str, results.judged), *filter(None, [chance(results.judged, study.ask.confidence)])]
    if loose := [str(each) for each in study.expect if each.counts_any_effect]:
        what = "a bound where rows are equal is met by any effect, however small; another says which counts"
        found.append(f"note: {what}: {some(loose)}")
    return found


def _divergence(results: StudyResults, row: str) -> str:
    """Return the sentence about a row with runs that diverged."""
    ended = [member for member in results.members[row] if member.run.divergence]
    if not ended:
        what = f"the {shown(results.metric)} of a run is not finite at the end"
    else:
        how = "; ".join(f"seed {each.seed}: {each.run.divergence}" for each in ended[:MAX_SENTENCES])
        what = f"{shown(how)}; {len(ended)} of {len(results.members[row])} runs diverged"
    return f"{shown(row)}: {what}, so this row is compared with none"


def _remarks(results: StudyResults) -> list[str]:
    """Return what runs did not achieve: no commit, or a model that is worse than the one they began with."""
    told = [
        f"{shown(row)}, seed {member.seed}: {remark}"
        for row, members in results.members.items()
        for member in members
        for remark in member.run.shortcomings(results.metric)
    ]
    more = [f"and {len(told) - MAX_SENTENCES:,} more runs without success (runs.csv)"] if told[MAX_SENTENCES:] else []
    return [*told[:MAX_SENTENCES], *more]


def _beyond_rule(results: StudyResults) -> list[str]:
    """Return the sentence about rows whose aggregation rule was not made for so many false reports; or nothing."""
    means = {row: results.mean(row, "commits_beyond_rule") for row in results.members}
    rows = [f"{row} (in {each.mean:.4g} commits of a run)" for row, each in means.items() if each and each.mean]
    what = "more reports were false than the aggregation rule withstands, mean over seeds"
    return [f"{what}: {some(rows)}"] if rows else []


def _chosen_in_vain(results: StudyResults) -> list[str]:
    """Return a sentence for each row of which a run learnt nothing with the values that trials had chosen."""
    tuning, found = results.plan.study.tuning, []
    of_trials = tuning.seeds or results.plan.study.seeds[:1]
    for row, tuned in results.tuned.items():
        runs = results.members[row]
        failed = [each.seed for each in runs if each.has_diverged or each.run.shortcomings(results.metric)]
        if tuned.chosen and failed:
            values = ", ".join(f"{path} {value}" for path, value in tuned.chosen.items())
            what = f"{values} was chosen by trials with {_seeds(of_trials)}, and did not hold in the runs of"
            more = "`tuning` with more seeds or rounds may choose better"
            found.append(f"{shown(row)}: {what} {_seeds(failed)} ({len(failed)} of {len(runs)}); {more}")
    return found


def _seeds(seeds: list[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _unfinished_trials(results: StudyResults) -> list[str]:
    """Return how many trials are finished, and of which rows none is; nothing if all are."""
    finished, known = results.trial_runs
    if finished == known:
        return []
    found = [f"trials: {finished:,} of {known:,} are finished; the values that rows have here may change"]
    if finished and results.untried:
        found.append(f"no trial of these rows has been made yet: {some(results.untried)}")
    return found


def _gaps(results: StudyResults) -> list[str]:
    """Return the sentence about rows that tried values far from their best one and none between; or nothing."""
    rows = []
    for row, tuned in results.tuned.items():
        for path, values in tuned.gaps.items():
            best = values_in_words({path: tuned.chosen[path]})
            rows.append(f"{row} ({best} beside {' and '.join(map(str, values))})")
    what = "values that were tried beside the best are a factor of ten or more away, and a better one may lie between"
    return [f"{what}: {some(rows)}"] if rows else []


def _tied(results: StudyResults) -> list[str]:
    """Return the sentence about rows whose best value is hardly better than the second best; nothing without such."""
    if not results.tied:
        return []
    factor, unit = (100, "%") if is_share(results.metric) else (1, "")
    rows = []
    for row, trials in results.tied.items():
        both = (f"{values_in_words(trial.values)}: {factor * trial.score:.4g}{unit}" for trial in trials)
        gain = f"; may gain {factor * results.regrets[row]:.2g}{unit and ' points'}" if results.regrets[row] else ""
        rows.append(f"{row} ({' and '.join(both)}{gain})")
    what = "tuning did not tell the best value from the second best, which is within one standard error of it"
    knows = "intervals of its differences from rows with other values are as much wider"
    return [f"{what}: {some(rows)}; {knows}, and more seeds in `tuning` tell more"]


def some(rows: Sequence[str]) -> str:
    """Return the names of rows, not of very many."""
    more = f"; and {len(rows) - MAX_SENTENCES:,} more" if len(rows) > MAX_SENTENCES else ""
    return "; ".join(map(shown, rows[:MAX_SENTENCES])) + more


def _unequal_trials(results: StudyResults) -> list[str]:
    """Return the sentence about rows that spent more trials than others, if there are such and all are finished."""
    finished, known = results.trial_runs
    if finished < known:
        return []
    rows: dict[int, list[str]] = {}
    for cell in results.plan.cells:
        tuned = results.tuned.get(cell.name)
        rows.setdefault(0 if tuned is None else len(tuned.trials), []).append(shown(cell.name))
    if len(rows) == 1:
        return []
    counts = "; ".join(f"{count:,}: {', '.join(rows[count])}" for count in sorted(rows))
    return [f"rows spent different numbers of trials, which favours those with more; {counts}"]


def _verdict(results: StudyResults, row: str, other: str, difference: Difference) -> str:
    better = results.better(row, other, difference)
    worse = other if better == row else row
    by = _with_interval(results, abs(difference.mean), *sorted((abs(difference.low), abs(difference.high))))
    return f"{shown(better)} is better than {shown(worse)} by {by}"


def _unseen(results: StudyResults, pairs: list[tuple[str, str, Difference]]) -> list[str]:
    """Return the sentences about pairs of which neither row is seen to be better, one for each number of seeds.

    They have the interval, where there is one: a difference may be as large as its ends. Pairs with equal values are
    told apart: they may be one algorithm twice, and more seeds would not show a difference.
    """
    alike: dict[str, list[str]] = {}
    for row, other, each in pairs:
        if each.is_seen:
            continue
        what = f"{each.verdict} at {counted(each.seeds, 'seed')}"
        between = f"{shown(row)} and {shown(other)}"
        if not each.is_zero:
            what = what if each.seeds > 1 else f"{each.verdict} a difference from chance"
            between = f"{shown(row)} − {shown(other)} = {_with_interval(results, each.mean, each.low, each.high)}"
        alike.setdefault(what, []).append(between)
    found = []
    for what, named in alike.items():
        more = f"; and {len(named) - MAX_SENTENCES:,} more pairs" if len(named) > MAX_SENTENCES else ""
        found.append(f"{what}: {'; '.join(named[:MAX_SENTENCES])}{more}")
    return found


def _with_interval(results: StudyResults, mean: float, low: float, high: float) -> str:
    """Return a difference in the metric with its interval, if it has one."""
    factor, unit = (100, " points") if is_share(results.metric) else (1, "")
    interval = f" [{factor * low:.4g}, {factor * high:.4g}]" if math.isfinite(low) else ""
    return f"{factor * mean:.4g}{unit}{interval}"
