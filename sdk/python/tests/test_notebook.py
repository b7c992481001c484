"""An Execution shows itself in a notebook, and its output cannot act there."""

import base64

import pytest

from python_executor import Artifact, DisplayData, Execution
from python_executor._notebook import MAX_TEXT, execution_html

EVIL = "<script>alert('x')</script>\"&"


def execution(**fields: object) -> Execution:
    return Execution(**{"execution_id": "exe_1", "status": "succeeded", **fields})  # type: ignore[arg-type]


def test_output_is_escaped() -> None:
    shown = execution_html(
        execution(
            stdout=EVIL,
            stderr=EVIL,
            status=EVIL,
            artifacts=[Artifact(path=EVIL)],
            displays=[DisplayData({"text/plain": EVIL}), DisplayData({"text/html": EVIL}), DisplayData({EVIL: EVIL})],
        )
    )
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;&amp;") == 8


def test_html_of_a_display_has_no_rights() -> None:
    shown = execution_html(execution(displays=[DisplayData({"text/html": "<b>1</b>", "text/plain": "1"})]))
    assert '<iframe sandbox="" srcdoc="&lt;b&gt;1&lt;/b&gt;"' in shown


@pytest.mark.parametrize("mime", ["image/png", "image/jpeg", "image/gif", "image/webp"])
def test_an_image_is_shown_before_other_forms(mime: str) -> None:
    shown = execution_html(execution(displays=[DisplayData({"text/plain": '<Figure "1">', "text/html": "<b>", mime: b"\x89PNG"})]))
    assert f'<img src="data:{mime};base64,{base64.b64encode(b"x89PNG".replace(b"x89", bytes([0x89]))).decode()}"' in shown
    assert 'alt="&lt;Figure &quot;1&quot;&gt;"' in shown
    assert "<iframe" not in shown


def test_a_drawing_is_an_image_in_which_scripts_do_not_run() -> None:
    shown = execution_html(execution(displays=[DisplayData({"image/svg+xml": "<svg><script>1</script></svg>"})]))
    assert "<svg" not in shown
    assert "data:image/svg+xml;base64," + base64.b64encode(b"<svg><script>1</script></svg>").decode() in shown


def test_long_output_shows_its_end() -> None:
    shown = execution_html(execution(stdout="a" * 10 + "b" * MAX_TEXT))
    assert "The first 10 characters are not shown." in shown
    assert "ab" not in shown


def test_colours_of_a_terminal_are_removed() -> None:
    assert ">red<" in execution_html(execution(stdout="\x1b[1;31mred\x1b[0m"))


def test_an_end_without_success_is_told() -> None:
    assert "timed_out" in execution_html(execution(status="timed_out"))
    assert "succeeded" not in execution_html(execution())


def test_what_is_missing_is_told() -> None:
    shown = execution_html(execution(displays_truncated=True, stdout_truncated=True, artifacts=[Artifact(path="a.csv")]))
    assert "displays are missing" in shown
    assert "cut at output_bytes" in shown
    assert "Files: a.csv" in shown


def test_an_execution_shows_itself() -> None:
    one = execution(stdout="hello")
    assert one._repr_html_() == execution_html(one)
