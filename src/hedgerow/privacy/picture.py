"""An account as a picture: what rows that paid the most paid at each depth, and what they have left.

Knows numbers only; a ledger draws itself with it, and so does the record of a training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hedgerow.errors import MissingPackage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")  # told apart by the colour-blind
ALARM = "#b00020"
ROW = 0.3  # inches a depth

Payment = tuple[int, str, float]  # at which depth, for what, how much
Account = tuple[float, float, Sequence[Payment]]  # granted, spent, and the payments that add up to that


def pyplot() -> Any:
    """matplotlib, if it is there."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise MissingPackage("pictures need the package matplotlib: pip install 'hedgerow[plot]'.") from error
    return plt


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of some inches, which notebooks show by themselves."""
    figure: Figure = pyplot().figure(figsize=(width, height), layout="constrained")
    return figure


def headline(axes: Axes, text: str, leaks: Sequence[str]) -> None:
    """A title that says so, in red, if the numbers promise nothing."""
    warning = f"NOT PRIVATE: {'; '.join(leaks)}\n" if leaks else ""
    axes.set_title(warning + text, loc="left", fontsize=10, color=ALARM if leaks else "black")


def plot_accounts(accounts: Sequence[Account], leaks: Sequence[str]) -> list[Axes]:
    """One panel a holder; payments of nothing are left out."""
    accounts = [(granted, spent, [x for x in payments if x[2] > 0]) for granted, spent, payments in accounts]
    heights = [ROW * len({depth for depth, _, _ in payments}) + 1.0 for _, _, payments in accounts]
    figure = new_figure(8, sum(heights) + 0.4)
    panels: list[Axes] = figure.subplots(len(accounts), 1, squeeze=False, sharex=True, height_ratios=heights)[
        :, 0
    ].tolist()
    for number, (axes, (granted, spent, payments)) in enumerate(zip(panels, accounts, strict=True), start=1):
        who = f"holder {number}: " if len(accounts) > 1 else ""
        spending = f"{who}epsilon {spent:.4g} spent of {granted:.4g}"
        headline(axes, spending, leaks if number == 1 else ())
        if math.isfinite(granted):
            _draw_payments(axes, granted, payments)
        else:
            axes.set_axis_off()
            axes.text(0, 0.5, "Epsilon is infinite: there is nothing to add up.", transform=axes.transAxes)
    if math.isfinite(accounts[0][0]):
        panels[0].legend(loc="upper right", frameon=False, fontsize=9)
        panels[-1].set_xlabel("epsilon, added up along the most expensive path")
    return panels


def _draw_payments(axes: Axes, granted: float, payments: Sequence[Payment]) -> None:
    """One row a depth, each beginning where the one above ends, and at the bottom what is left."""
    depths = sorted({depth for depth, _, _ in payments})
    kinds = sorted({what for _, what, _ in payments})
    begin, named = 0.0, set()
    for depth, what, paid in sorted(payments):
        colour, label = COLOURS[kinds.index(what) % len(COLOURS)], None if what in named else what
        axes.barh(depths.index(depth), paid, left=begin, color=colour, height=0.8, label=label)
        begin += paid
        named.add(what)
    left = granted - begin
    axes.barh(len(depths), left, left=begin, color="none", edgecolor="0.5", hatch="////", height=0.8)
    axes.set_yticks(range(len(depths) + 1), [*(f"depth {depth}" for depth in depths), f"left: {left:.3g}"])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, granted)
    axes.xaxis.grid(visible=True, color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
