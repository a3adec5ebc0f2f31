"""The page at /, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_models_are_shown_and_called(page: Any, folder: Path, start: Callable[..., Any]):
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(f"http://127.0.0.1:{start().http_port}/")
    card = page.locator("section[data-key='rows/1']")
    card.wait_for(timeout=30_000)
    assert "x: FP32 [n, 8]" in card.inner_text()
    assert "relu: FP32 [n, 4]" in card.inner_text()
    assert page.locator("section").count() == 3  # rows, rows:double, mixed
    card.locator("summary").click()
    card.locator("button").click()
    card.locator("pre").wait_for(timeout=30_000)
    assert '"relu"' in card.locator("pre").inner_text()
    card.locator(".counts", has_text="1 answered").wait_for(timeout=30_000)
    card.locator("textarea").fill("{}")
    card.locator("button").click()
    card.locator("pre.bad").wait_for(timeout=30_000)
    assert "expected a list" in card.locator("pre").inner_text()
    assert [error for error in errors if "400" not in error and "favicon" not in error and "404" not in error] == []


def test_names_of_a_model_are_text_and_no_markup(page: Any, folder: Path, start: Callable[..., Any]):
    import treadle
    from treadle import Module, function, var

    name = "<img src=x onerror=document.title='hurt'>"
    x = var(name, ("n", 2))
    treadle.compile(Module(main=function([x], x + 1))).export_library(folder / "odd.trdl")
    page.goto(f"http://127.0.0.1:{start().http_port}/")
    card = page.locator("section[data-key='odd/1']")
    card.wait_for(timeout=30_000)
    assert name in card.inner_text()
    assert page.locator("section img").count() == 0
    assert page.title() == "Treadle"


def test_models_that_cannot_be_loaded_are_named(page: Any, folder: Path, start: Callable[..., Any]):
    (folder / "broken.trdl").write_bytes(b"nothing")
    page.goto(f"http://127.0.0.1:{start().http_port}/")
    page.locator("#problems p").wait_for(timeout=30_000)
    assert "broken, version 1: unavailable" in page.locator("#problems").inner_text()
    assert page.locator("#state").inner_text().startswith("ready")  # it takes nothing from the others


def test_the_page_needs_no_token_but_what_it_shows_does(
    page: Any, folder: Path, start: Callable[..., Any], tmp_path: Path
):
    (tmp_path / "tokens").write_text("secret\n")
    page.goto(f"http://127.0.0.1:{start(tokens=str(tmp_path / 'tokens')).http_port}/")
    page.wait_for_function("() => document.querySelector('#state').textContent.includes('Bearer')", timeout=30_000)
    assert page.locator("section").count() == 0
    page.locator("#token").fill("secret")
    page.locator("section[data-key='rows/1']").wait_for(timeout=30_000)


def test_models_of_texts_have_a_box(page: Any, folder: Path, start: Callable[..., Any], tmp_path: Path):
    import pytest
    import treadle
    from treadle.tools.dev.zoo.folders import chat, with_head, write

    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    ranks = {"architecture": "BertForSequenceClassification", "id2label": {"0": "L"}}
    classes = {**ranks, "id2label": {"0": "bad", "1": "good"}}
    folders = (
        chat(tmp_path / "chat"),
        write(tmp_path / "minilm"),
        write(tmp_path / "ranks", with_head(1), **ranks),
        write(tmp_path / "classes", with_head(2), **classes),
    )
    for each in folders:
        treadle.compile(each, progress=False).export_library(folder / f"{each.name}.trdl")
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"http://127.0.0.1:{start().http_port}/")
    for name, task, shown in (
        ("minilm", "embed", "1.0000  a sentence"),
        ("ranks", "score", "another text"),
        ("classes", "classify", "a sentence"),
        ("chat", "generate", ""),
    ):
        card = page.locator(f"section[data-key='text {name} {task}']")
        card.locator("button").click(timeout=30_000)
        card.locator("button:not([disabled])").wait_for(timeout=30_000)
        card.locator(".quiet", has_text="s").wait_for(timeout=30_000)
        assert card.locator("pre.bad").count() == 0
        assert shown in card.locator("pre").inner_text()
    card.locator("textarea").fill("a" * 9000)
    card.locator("button").click()
    card.locator("pre.bad").wait_for(timeout=30_000)
    assert "the model takes 512" in card.locator("pre").inner_text()
    assert errors == []
