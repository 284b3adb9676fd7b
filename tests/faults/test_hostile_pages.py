"""The pages of a decision and of a study of a collection whose every name, id and text is an attack."""

import json
import re

import pytest

import foils
from fakes import HashingEncoder
from foils.experiments import StudySettings, analyse, open_study, read_cells, run_cells
from hostile import assert_harmless, hostile_world, outside_plotly
from in_browser import assert_fits_everyone, in_chromium, needs_chromium
from train_models import static_model

NAME = "<img src=x onerror=document.title='owned'>"  # what a folder may be called
TITLES = {"score": "Which hard negatives to train on", "study": "Did the score predict the training?"}


@pytest.fixture(scope="module", params=TITLES)
def page(request, tmp_path_factory):
    """The title of a page, and its place."""
    place, (collection, sources) = tmp_path_factory.mktemp("hostile"), hostile_world()
    vectors = foils.VectorStore(place / "vectors")
    if request.param == "score":
        foils.score(collection, sources, encoder=HashingEncoder(), vectors=vectors).report(place / "page.html")
    else:
        static_model().save_pretrained(str(place / NAME))
        settings = StudySettings(seeds=1, training={"batch_size": 8})
        run_cells(open_study(place / "study", collection, sources, [str(place / NAME)], settings), vectors)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("foils.experiments.analysis.RESAMPLES", 10)  # quick
            analyse(read_cells(place / "study")).report(place / "page.html")
        assert all(path.resolve().is_relative_to(place) for path in place.rglob("*"))
    return TITLES[request.param], place / "page.html"


def test_what_users_bring_is_escaped_and_nothing_is_fetched(page):
    title, path = page
    text = outside_plotly(path.read_text("utf-8"))
    assert f"<title>{title}</title>" in text
    assert_harmless(path.read_text("utf-8"))
    figures = re.search(r"^const figures = (.*);$", text, re.M)[1]
    shown = re.sub(r'"hovertemplate": ?"(?:[^"\\\\]|\\\\.)*"', "", json.dumps(json.loads(figures)))  # the page's own
    assert "<" not in shown, "Plotly reads some HTML in labels"


@pytest.mark.slow
@needs_chromium
def test_no_script_of_a_collection_runs_in_a_browser(page):
    title, path = page
    shown = in_chromium(path)
    assert f"<title>{title}</title>" in shown
    assert shown.count('class="main-svg"') >= 2, "the figures were drawn"
    assert "<img" not in re.sub(r"<script>.*?</script>", "", shown, flags=re.S)
    assert_fits_everyone(path)
