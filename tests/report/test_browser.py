"""The report in a real browser: it draws, it routes rows as `predict` does, it can be used without a mouse."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from hedgerow import Categorical, Numeric, PrivateTreeClassifier, Schema
from hedgerow.datasets import synthetic_hospitals
from hedgerow.tree import LEAF, Tree

from .test_page import NASTY, nasty_model

HOSPITALS = synthetic_hospitals(rows=4_000)
OTHER = "(another value)"  # the form's option for what the schema does not name

# Fills in the form as a person would, and reads what it answers.
FOLLOW = """rows => rows.map(row => {
  row.forEach((value, c) => {
    const field = document.getElementById(`field-${c}`);
    if (!field.options) field.value = value ?? "";
    else field.selectedIndex = value === null ? 0 : Array.from(field.options, o => o.textContent).indexOf(value);
  });
  document.getElementById("form").requestSubmit();
  const panel = document.getElementById("node");
  const shares = Array.from(panel.querySelectorAll("data[data-class]"), d => [+d.dataset.class, +d.value]);
  return { node: +panel.dataset.node, best: +panel.querySelector(".prediction").value, shares };
})"""


@pytest.fixture(scope="module")
def hospital_tree():
    return PrivateTreeClassifier(schema=HOSPITALS.schema, epsilon=4.0).fit_holders(HOSPITALS.holders)


def grown(schema, n_splits, seed=0):
    """A model with random splits and counts, of any size."""
    random = np.random.default_rng(seed)
    children = {}
    leaves, n_nodes = [0], 1
    for _ in range(n_splits):
        node = leaves.pop(random.integers(len(leaves)))
        children[node] = n_nodes, n_nodes + 1
        leaves += children[node]
        n_nodes += 2
    order, stack = [], [0]
    while stack:
        order.append(node := stack.pop())
        stack += reversed(children.get(node, ()))
    place = {node: i for i, node in enumerate(order)}
    split, left, right = (np.full(n_nodes, LEAF, dtype=np.int32) for _ in range(3))
    for node, (yes, no) in children.items():
        i = place[node]
        column = random.integers(len(schema.columns))
        split[i] = random.choice(np.flatnonzero(schema.split_table[:, 0] == column))
        left[i], right[i] = place[yes], place[no]
    counts = random.gamma(0.5, 100.0, (n_nodes, schema.n_classes))
    counts[random.random(counts.shape) < 0.1] = 0.0
    tree = Tree(schema, split, left, right, counts, random.gamma(2.0, 5.0, n_nodes))
    model = PrivateTreeClassifier(schema=schema)
    model.schema_, model.tree_, model._record = schema, tree, None
    model.classes_ = np.array(schema.classes)[schema.class_order]
    model.n_features_in_ = len(schema.columns)
    return model


EVERY_KIND = Schema(
    [
        Numeric("even", -1, 1, thresholds=7),
        Numeric("odd thirds", 0.1, 0.7, thresholds=[0.1, 0.3, 1 / 3, 0.5, 0.6], missing=True),
        Numeric("tiny", 0, 5e-300, thresholds=3),
        Categorical("text", ["a", "b", " b", "", "ä"], missing=True),
        Categorical("plain text", ["x", "y", "z"]),
        Categorical("integer", [1, -7, 2**62, 2**62 + 1], missing=True),
        Categorical("truth", [False, True]),
        Categorical("many", [f"place {i}" for i in range(300)]),
    ],
    label="kind",
    classes=[3, 1, 2],
)


def every_kind_rows(n, random, single):
    """Rows of EVERY_KIND with thresholds, neighbours of thresholds, odd and missing values, as a table and typed."""
    table, typed = {}, []
    for column in EVERY_KIND.columns:
        if isinstance(column, Numeric):
            near = np.concatenate([column.cuts, [column.low, column.high]])
            choices = np.concatenate(
                [near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf), near * 1.5 - 1, [np.nan] * 4]
            )
            values = random.choice(np.concatenate([choices, [np.inf, -np.inf, -0.0, 1e300, 1e-320]]), n)
            with np.errstate(over="ignore"):
                table[column.name] = values.astype(np.float32) if single else values
            texts = ["" if np.isnan(v) else repr(float(v)) for v in values]
            typed.append([random.choice([t, t.upper(), f" {t} "]) if t else t for t in texts])
        else:
            known = [*column.categories, None, "elsewhere" if isinstance(column.categories[0], str) else 99]
            values = [known[i] for i in random.integers(len(known), size=n)]
            table[column.name] = pd.Series(values, dtype=object)
            unknown = OTHER if len(column.categories) <= 200 else "elsewhere"  # many are typed, not listed
            typed.append(
                [str(v) if v in column.categories else None if v is None else unknown for v in values]
            )
    return pd.DataFrame(table), [list(row) for row in zip(*typed, strict=True)]


def assert_answers(answers, model, table):
    leaves = model.apply(table).tolist()
    assert [a["node"] for a in answers] == leaves
    assert [model.schema_.classes[a["best"]] for a in answers] == model.predict(table).tolist()
    shares = [[share for _, share in sorted(a["shares"])] for a in answers]
    assert shares == model.tree_.probabilities[leaves].tolist()
    assert len(set(leaves)) >= 5


def test_the_form_routes_patients_as_predict_does(visit, hospital_tree):
    page = visit(hospital_tree)
    table = HOSPITALS.test_table[:200]
    rows = [[None if v != v else str(v) for v in row] for row in table.tolist()]  # noqa: PLR0124 - NaN
    assert_answers(page.evaluate(FOLLOW, rows), hospital_tree, table)


@pytest.mark.parametrize("single", [False, True])
def test_the_form_routes_every_kind_of_value_as_predict_does(visit, single):
    model = grown(EVERY_KIND, 80)
    table, rows = every_kind_rows(250, np.random.default_rng(1), single)
    page = visit(model)
    page.set_checked("#single", single)
    assert_answers(page.evaluate(FOLLOW, rows), model, table)


def test_a_row_is_typed_and_explained(visit, hospital_tree):
    page = visit(hospital_tree)
    tree = hospital_tree.tree_
    column = HOSPITALS.schema.columns[HOSPITALS.schema.splits[tree.split[0]].column]
    row = HOSPITALS.test_table[0]
    page.evaluate("document.getElementById('unused').open = true")
    for c, value in enumerate(row.tolist()):
        field = page.locator(f"#field-{c}")
        if isinstance(HOSPITALS.schema.columns[c], Numeric):
            field.fill("" if value != value else str(value))  # noqa: PLR0124 - NaN
        else:
            field.select_option(label=value)
    page.get_by_role("button", name="Follow this row").click()
    [predicted] = hospital_tree.predict(row[None]).tolist()
    panel = page.locator("#node")
    assert panel.locator("h3").inner_text() == f"malaria: {predicted}"
    [leaf] = hospital_tree.apply(row[None]).tolist()
    assert panel.locator("li", has_text="(here ").count() == tree.depths[leaf]
    assert column.name in panel.locator("ol li").first.inner_text()
    assert page.locator(".item.on").count() == tree.depths[leaf] + 1
    assert page.locator(f".item.selected[data-node='{leaf}']").count() == 1
    page.get_by_role("button", name="Clear").click()
    assert page.locator(".item.on").count() == 0


@pytest.mark.parametrize("text", ["38,5", "0x10", "1_000", "warm", "1e", "--1"])
def test_what_is_no_number_is_refused(visit, text):
    page = visit(grown(EVERY_KIND, 80))
    page.fill("#field-0", text)
    page.click("text=Follow this row")
    assert (
        page.locator("#node").inner_text() == "even is not a number, so this row has no way through the tree."
    )
    assert page.locator("#field-0").get_attribute("aria-invalid") == "true"
    assert page.evaluate("document.activeElement.id") == "field-0"


def test_values_outside_the_schema_are_remarked_on(visit):
    page = visit(grown(EVERY_KIND, 80))
    page.fill("#field-0", "7")
    page.select_option("#field-4", label=OTHER)
    page.click("text=Follow this row")
    assert page.locator("#field-0-hint").inner_text() == "Above 1: taken as the highest"
    assert page.locator("#field-4-hint").inner_text().startswith("Not in the schema")
    assert page.locator("#field-2-hint").inner_text() == "Missing: taken as the lowest"


def test_a_tree_of_512_splits_is_drawn_in_two_seconds(visit):
    page = visit(grown(HOSPITALS.schema, 512))
    assert page.evaluate("+document.documentElement.dataset.ready") < 2_000  # ms since the page was asked for
    assert page.locator(".item").count() < 40  # the largest nodes only, until someone asks for more
    all_of_it = page.evaluate(
        """() => { const begun = performance.now(); document.getElementById("expand").click();
        document.getElementById("drawing").getBoundingClientRect(); return performance.now() - begun; }"""
    )
    assert page.locator(".item").count() == 1025
    assert all_of_it < 2_000


def test_the_drawing_shows_every_node_once(visit, hospital_tree):
    page = visit(hospital_tree)
    page.get_by_role("button", name="Expand all").click()
    shown = page.evaluate("Array.from(document.querySelectorAll('.item'), item => +item.dataset.node)")
    assert shown == list(range(hospital_tree.tree_.n_nodes))  # top to bottom is depth first
    page.get_by_role("button", name="Collapse").click()
    assert page.get_by_role("treeitem").count() == 1
    page.locator(".toggle").click()
    assert page.get_by_role("treeitem").count() == 3
    share = hospital_tree.tree_.counts.sum(axis=1)[1] / hospital_tree.tree_.counts[0].sum()
    assert (
        page.get_by_role("treeitem", name=re.compile(rf"^Yes: .*, {100 * share:.1f}% of rows")).count() == 1
    )


def test_the_keyboard_walks_the_tree(visit, hospital_tree):
    page = visit(hospital_tree)
    tree = hospital_tree.tree_
    page.get_by_role("button", name="Collapse").click()
    page.locator(".item[data-node='0']").focus()

    def at():
        return page.evaluate("+document.activeElement.dataset.node")

    def press(*keys):
        for key in keys:
            page.keyboard.press(key)
        return at()

    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    assert press("ArrowRight") == 0  # opens
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert press("ArrowRight") == tree.left[0]
    assert press("ArrowDown") == tree.right[0]
    assert press("ArrowUp", "ArrowLeft") == 0
    assert press("End") == tree.right[0]
    assert press("Home") == 0
    assert press("Enter") == 0  # closes
    assert page.get_by_role("treeitem").count() == 1
    assert press(" ") == 0
    assert page.get_by_role("treeitem").count() == 3
    assert page.locator("#node h3").inner_text().endswith("?")
    outline = page.evaluate("getComputedStyle(document.activeElement.querySelector('.box')).strokeWidth")
    assert outline == "3.5px"


def test_every_control_is_reached_by_tab(visit, hospital_tree):
    page = visit(hospital_tree)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.dataset.node"))
    assert {"theme", "expand", "collapse", "in", "out", "fit", "0", "single"} <= reached
    fields = "Array.from(document.querySelectorAll('#fields input, #fields select'), field => field.id)"
    assert {*page.evaluate(fields)} <= reached


def test_zoom_and_fit(visit):
    page = visit(grown(HOSPITALS.schema, 60))

    def width():
        return page.evaluate("document.querySelector('#drawing svg').getBoundingClientRect().width")

    before = width()
    page.get_by_role("button", name="Zoom in").click()
    assert width() == pytest.approx(1.25 * before, rel=1e-3)
    page.get_by_role("button", name="Expand all").click()
    page.get_by_role("button", name="Fit").click()
    box, drawing = (page.locator(s).bounding_box() for s in ("#drawing", "#drawing svg"))
    assert drawing["height"] <= box["height"]
    assert drawing["width"] <= box["width"]


def test_dragging_moves_the_drawing(visit):
    page = visit(grown(HOSPITALS.schema, 60))
    page.get_by_role("button", name="Expand all").click()
    page.evaluate("document.getElementById('drawing').scrollTo(0, 300)")
    page.locator("#drawing").scroll_into_view_if_needed()
    box = page.locator("#drawing").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 120, steps=4)
    page.mouse.up()
    assert page.evaluate("document.getElementById('drawing').scrollTop") == 380


def luminance(rgb):
    channels = [float(c) / 255 for c in rgb[rgb.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_can_be_switched_and_read(visit, scheme):
    model = PrivateTreeClassifier(schema=HOSPITALS.schema, noise_seed=1).fit_holders(HOSPITALS.holders)
    page = visit(model, color_scheme=scheme)

    def paper():
        return luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    assert (paper() < 0.1) == (scheme == "dark")
    found = page.evaluate(
        """() => ["body", ".lead", ".quiet", "nav a", ".banner p", "button.primary", "dt", ".hint", "summary"].map(s => {
          const element = document.querySelector(s), ink = getComputedStyle(element).color;
          let below = element;
          while (getComputedStyle(below).backgroundColor === "rgba(0, 0, 0, 0)") below = below.parentElement;
          return [s, ink, getComputedStyle(below).backgroundColor];
        })"""
    )
    for selector, ink, ground in found:
        light, dark = sorted([luminance(ink), luminance(ground)], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, selector
    page.locator("#theme").click()
    assert (paper() < 0.1) != (scheme == "dark")


def test_nothing_is_wider_than_a_phone(visit, hospital_tree):
    page = visit(hospital_tree, viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_the_print_shows_the_whole_drawing_and_no_form(visit, hospital_tree):
    page = visit(hospital_tree)
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator("#form").is_visible()
    assert luminance(page.evaluate("getComputedStyle(document.body).backgroundColor")) == pytest.approx(1.0)
    box = page.evaluate(
        "(b => [b.scrollWidth - b.clientWidth, b.scrollHeight - b.clientHeight])(document.getElementById('drawing'))"
    )
    assert box == [0, 0]


def test_names_are_shown_as_they_are(visit):
    page = visit(nasty_model(), {NASTY[0]: NASTY[1]})
    page.get_by_role("button", name="Expand all").click()
    assert page.title() == f"Decision tree for {NASTY[2]}"
    assert page.locator("label[for=field-0]").inner_text() == NASTY[0]
    assert [o.inner_text() for o in page.locator("#field-0 option").all()][1:-1] == NASTY
    assert page.locator("#classes").inner_text().split("\n") == NASTY[:3]
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0


def test_a_tree_of_one_leaf_and_many_classes(visit):
    schema = Schema([Numeric("x", 0, 1)], label="letter", classes=[chr(65 + i) for i in range(26)])
    page = visit(grown(schema, 0))
    assert page.get_by_role("treeitem").count() == 1
    assert "16 more" in page.locator("#node .shares").inner_text()
    [answer] = page.evaluate(FOLLOW, [["0.5"]])
    assert answer["node"] == 0


def test_the_page_holds_released_numbers_only(visit, hospital_tree, tmp_path):
    hospital_tree.save(tmp_path / "tree.json")
    released = json.loads((tmp_path / "tree.json").read_text())["nodes"]
    page = visit(hospital_tree)
    nodes = page.evaluate("JSON.parse(document.getElementById('data').textContent).nodes")
    assert [node["rows"] for node in nodes] == [sum(node["counts"]) for node in released]
