"""Pictures of a trained model for notebooks and papers: its tree, and what each holder spent.

Drawn by matplotlib, which is imported when a picture is asked for. The classifier imports this.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hedgerow.privacy.picture import ALARM, COLOURS, headline, new_figure, plot_accounts
from hedgerow.record import Record
from hedgerow.tree import LEAF, Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ENDS = 64  # of branches, in a picture whose depth nobody chose: a full tree of depth 6
FONT = 9.0  # points
LETTER, LINE = 0.066, 0.3  # inches that letters and lines of this size take
LONGEST = 40  # letters of a label


def plot_tree(tree: Tree, record: Record | None, max_depth: int | None, ax: Axes | None) -> Axes:
    """The tree from left to right; a row that passes a node's test takes the upper branch.

    What lies below `max_depth` is counted, not drawn; by default the picture is as deep as 64 ends allow.
    """
    layout = _Layout.of(tree, _fitting_depth(tree) if max_depth is None else max_depth)
    width, height = layout.size
    font = FONT
    if ax is None:
        ax = new_figure(width, height).add_subplot()
    else:  # letters shrink with the picture
        box = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
        font *= min(1.0, box.width / width, box.height / height)
    ax.set_axis_off()
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    headline(ax, _title(tree, record), () if record is None else record.leaks)
    for node in layout.shown:
        _draw_node(ax, tree, layout, node, font)
    return ax


def plot_spending(record: Record) -> list[Axes]:
    """What rows that paid the most paid at each depth, one panel a holder, and what is left."""
    accounts = [
        (
            float(account.granted),
            float(account.spent),
            [(x.depth, x.what, float(x.paid)) for x in account.lines],
        )
        for account in record.accounts
    ]
    return plot_accounts(accounts, record.leaks)


def summary_html(tree: Tree, record: Record | None) -> str:
    """What a notebook shows below the estimator: size, spending, plan, and a warning if nothing is protected."""
    parts = [f"{tree.n_splits} splits, {tree.n_leaves} leaves, depth {tree.depth}"]
    if record is None:
        parts.append("<p>The model's file does not say how it was trained.</p>")
    else:
        parts += [f"<p>{_banner(record)}</p>", _spending_table(record)]
        plan = "".join(f"<p>{escape(sentence)}</p>" for sentence in record.plan)
        parts.append(f"<details><summary>Plan</summary>{plan}</details>")
    return f'<div style="font-family: sans-serif; font-size: 90%; max-width: 60em">{"".join(parts)}</div>'


@dataclass(frozen=True)
class _Layout:
    """Where nodes stand, in inches: `x` by depth, `y` by the order of the ends of branches."""

    shown: list[int]
    is_end: NDArray[np.bool_]
    labels: dict[int, str]
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    size: tuple[float, float]

    @classmethod
    def of(cls, tree: Tree, max_depth: int) -> _Layout:
        shown = np.flatnonzero(tree.depths <= max_depth).tolist()
        is_end = (tree.split == LEAF) | (tree.depths == max_depth)
        labels = {node: _label(tree, node, is_end=bool(is_end[node])) for node in shown}
        widths = np.zeros(int(tree.depths[shown].max()) + 2)
        y = np.zeros(tree.n_nodes)
        ends = [node for node in shown if is_end[node]]
        y[ends] = LINE * (np.arange(len(ends)) + 0.5)
        for node in reversed(shown):
            depth = int(tree.depths[node])
            widths[depth + 1] = max(widths[depth + 1], LETTER * len(labels[node]) + 0.6)
            if not is_end[node]:
                y[node] = (y[tree.left[node]] + y[tree.right[node]]) / 2
        edges = np.cumsum(widths)
        size = (max(float(edges[-1]), 4.0), LINE * max(len(ends), 2) + 0.4)
        return cls(shown, is_end, labels, edges[tree.depths.clip(max=len(widths) - 2)], y, size)


def _banner(record: Record) -> str:
    spent = max(account.spent for account in record.accounts)
    holders = "" if len(record.accounts) == 1 else f" at each of {len(record.accounts)} holders"
    line = f"epsilon {float(spent):.4g} spent of {float(record.epsilon):.4g}{holders}"
    if not record.leaks:
        return line
    style = f"background: {ALARM}; color: white; font-weight: bold; padding: 0.2em 0.6em"
    return f'<span style="{style}">NOT PRIVATE: {escape("; ".join(record.leaks))}</span> {line}'


def _spending_table(record: Record) -> str:
    """What rows that paid the most paid: a line a depth and kind, a column a holder."""
    kinds = sorted({(line.depth, line.what) for account in record.accounts for line in account.lines})
    n = len(record.accounts)
    head = "<th>epsilon</th>" if n == 1 else "".join(f"<th>holder {i}</th>" for i in range(1, n + 1))
    rows = []
    for depth, what in kinds:
        cells = ""
        for account in record.accounts:
            paid = sum(float(x.paid) for x in account.lines if (x.depth, x.what) == (depth, what))
            cells += f"<td>{paid:.4g}</td>"
        rows.append(f"<tr><td>{depth}</td><td>{escape(what)}</td>{cells}</tr>")
    table = f"<table><tr><th>depth</th><th>for</th>{head}</tr>{''.join(rows)}</table>"
    return f"<details><summary>What rows that paid the most paid</summary>{table}</details>"


def _fitting_depth(tree: Tree) -> int:
    """The greatest depth at which no more than MOST_ENDS branches end."""
    depth = 0
    while depth < tree.depth and _n_ends(tree, depth + 1) <= MOST_ENDS:
        depth += 1
    return depth


def _n_ends(tree: Tree, max_depth: int) -> int:
    at = tree.depths == max_depth
    return int((at | ((tree.split == LEAF) & (tree.depths < max_depth))).sum())


def _title(tree: Tree, record: Record | None) -> str:
    epsilon = "" if record is None else f", epsilon {float(record.epsilon):g}"
    splits = "1 split" if tree.n_splits == 1 else f"{tree.n_splits} splits"
    return f"{tree.schema.label}: {splits}{epsilon}"


def _label(tree: Tree, node: int, *, is_end: bool) -> str:
    if not is_end:
        return _shortened(str(tree.schema.splits[tree.split[node]]))
    best = int(tree.counts[node].argmax())
    share, rows = tree.probabilities[node, best], tree.counts[node].sum()
    label = f"{_shortened(str(tree.schema.classes[best]))}  {share:.0%} of ~{rows:,.0f}"
    more = _n_splits_below(tree, node)
    return label if more == 0 else f"{label}  … {more} more split{'s' if more > 1 else ''}"


def _n_splits_below(tree: Tree, node: int) -> int:
    """Splits in the subtree, which is a run of nodes since they stand in depth-first order."""
    after = np.flatnonzero(tree.depths[node + 1 :] <= tree.depths[node])
    end = node + 1 + int(after[0]) if len(after) else tree.n_nodes
    return int((tree.split[node:end] != LEAF).sum())


def _shortened(text: str) -> str:
    half = (LONGEST - 1) // 2
    return text if len(text) <= LONGEST else f"{text[:half]}…{text[-half:]}"


def _draw_node(ax: Axes, tree: Tree, layout: _Layout, node: int, font: float) -> None:
    x, y, label = layout.x[node], layout.y[node], layout.labels[node]
    is_end = layout.is_end[node]
    if is_end:
        best = int(tree.counts[node].argmax())
        face, edge = COLOURS[best % len(COLOURS)], "none"
        opacity = 0.15 + 0.45 * float(tree.probabilities[node, best])
    else:
        face, edge, opacity = "white", "0.6", 1.0
    if not is_end:
        for child, answer in ((int(tree.left[node]), "yes"), (int(tree.right[node]), "no")):
            to_x, to_y = layout.x[child], layout.y[child]
            turn = to_x - 0.4
            ax.plot([x, turn, turn, to_x], [y, y, to_y, to_y], color="0.7", linewidth=0.8, zorder=0)
            ax.text(turn + 0.03, to_y - 0.02, answer, fontsize=0.8 * font, color="0.45", va="bottom")
    from matplotlib.colors import to_rgba

    style = {"boxstyle": "round,pad=0.25", "facecolor": to_rgba(face, opacity), "edgecolor": edge}
    ax.text(x, y, label, fontsize=font, va="center", bbox=style | {"linewidth": 0.8})
