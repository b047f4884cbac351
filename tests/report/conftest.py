"""A browser, if the machine has one, that may not use the network; pages report what they do."""

import os
import shutil

import pytest

from hedgerow.report import write_report

PLACES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")  # while it runs, nothing else can run an event loop
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PLACES)), None)
    if program is None:
        pytest.skip("there is no Chromium on this machine; install it or set CHROMIUM to its path")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=quiet)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Opens the report of a model; afterwards, nothing may have gone wrong or left the page."""
    complaints, contexts = [], []

    def open_report(model, evaluation=None, **options):
        path = tmp_path / f"report-{len(contexts)}.html"
        write_report(model, path, evaluation)
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda r: complaints.append(r.url) if r.url not in {path.as_uri(), "data:,"} else None,
        )
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert complaints == []
