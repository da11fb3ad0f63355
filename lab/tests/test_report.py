"""Reports as files and pages: structure, escaping, size, and other files in the folder."""

import base64
import hashlib
import itertools
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import replay_fixtures
import report_fixtures as fixtures
from prompt import ran
from refusals import mentions, refused

from tsmlab import cli, records, render, report, study, texts
from tsmlab.commands.studies import publish
from tsmlab.report import folder, html, vega, writing
from tsmlab.report.page import Figure, Page, Section, table_of
from tsmlab.study import Study

VOID = {"meta", "link", "input", "br"}
pytestmark = pytest.mark.usefixtures("vega_at_hand")
LIBRARY = "/* Vega */"


class Outline(HTMLParser):
    """The elements of a page, checked for balance; its identifiers, headings and text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.elements, self.text = [], [], []
        self.feed(text)
        self.close()
        self.ids = [values["id"] for _, values in self.elements if values.get("id")]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.stack, f"</{tag}> without a beginning"
            assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [values for name, values in self.elements if name == tag]


@pytest.fixture(scope="module")
def small():
    return fixtures.compared(6, 7, 64)


@pytest.fixture(scope="module")
def comparison_page(small):
    return html.render(writing.of(small))


@pytest.fixture(scope="module")
def experiment_page():
    names = ("tsmalloc", "glibc", "lock-best", "nolock-first", "rwlock-best")
    return html.render(writing.of(fixtures.experimented("x5-threads", names, 3)))


@pytest.fixture(scope="module")
def replay_page(tmp_path_factory):
    return html.render(writing.of(replay_fixtures.side_by_side(tmp_path_factory.mktemp("traces"))))


@pytest.fixture(params=["comparison", "experiment", "replay"])
def page(request):
    return request.getfixturevalue(f"{request.param}_page")


# --- structure ------------------------------------------------------------------------------------


def test_elements_headings_links_and_tables_are_well_formed(page):
    outline = Outline(page)
    assert outline.stack == []
    assert len(outline.ids) == len(set(outline.ids))
    # Headings begin at one and skip no level.
    headings = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch("h[1-6]", tag)]
    assert (headings[0], headings.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in itertools.pairwise(headings))
    # Whatever is pointed at exists.
    for _, values in outline.elements:
        href = values.get("href") or ""
        wanted = [href[1:]] if href.startswith("#") else []
        wanted += (values.get("aria-labelledby") or "").split()
        wanted += re.findall(r"url\(#([^)]+)\)", values.get("clip-path") or "")
        wanted += [values["for"] or ""] if "for" in values else []
        assert set(wanted) <= set(outline.ids)
    # Tables have captions and headers, and can be scrolled by keyboard.
    tables = len(outline.all("table"))
    assert tables > 3
    assert len(outline.all("caption")) == tables
    regions = [v for v in outline.all("div") if v.get("role") == "region"]
    assert len(regions) >= tables
    assert all(v.get("tabindex") == "0" for v in regions)
    assert all("scope" in v for v in outline.all("th"))


def digest(script):
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def scripts_of(page):
    return re.findall(r"<script>(.*?)</script>", page, re.DOTALL)


def data_of(figure):
    return json.loads(re.search(r"<script type=[^>]*>(.*?)</script>", figure, re.DOTALL)[1])


def test_nothing_is_loaded_and_only_known_scripts_run(page):
    outline = Outline(page)
    policies = [v["content"] for v in outline.all("meta") if "http-equiv" in v]
    assert policies[0].startswith("default-src 'none'")
    assert "unsafe-eval" not in policies[0]
    scripts = scripts_of(page)
    allowed = policies[0].partition("script-src ")[2].split()
    assert set(map(digest, scripts)) | {digest(LIBRARY)} == set(allowed)
    assert len(outline.all("script")) - len(scripts) == len(outline.all("figure")) + 1
    for _, values in outline.elements:
        assert not any(name.startswith("on") for name in values)
        for name in ("src", "href", "xlink:href", "action", "data"):
            link = values.get(name) or ""
            assert link.startswith(("#", "data:")) or not link
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_figures_have_a_title_axis_names_and_their_numbers(page):
    outline = Outline(page)
    figures = len(outline.all("figure"))
    assert figures
    assert len(outline.all("figcaption")) == figures
    for part in re.findall(r"<figure.*?</figure>", page, re.DOTALL):
        assert "<table" in part
        assert re.search(r'role="img" aria-label="[^"]+"', part)
        for panel in data_of(part):
            x, y = (panel["encoding"][axis] for axis in "xy")
            assert x["title"]
            assert y["title"] or y["type"] == "nominal", "rows are named by themselves"


def test_page_without_vega_has_its_tables_and_says_so(small, monkeypatch):
    monkeypatch.setattr(vega, "library", lambda: "")
    page = html.render(writing.of(small))
    outline = Outline(page)
    assert not outline.all("script")
    assert vega.MISSING in "".join(outline.text)
    assert all("open" in values for values in outline.all("details") if not values.get("class"))
    assert "script-src" not in page


def test_answer_comes_first_then_results_and_figures(small, comparison_page, experiment_page):
    def assert_in_order(page, *wanted):
        assert [i for i in Outline(page).ids if i in wanted] == list(wanted)

    figures = ("s-ratios", "s-tradeoff", "s-memory", "s-distribution")
    assert_in_order(
        comparison_page, "answer", "results", *figures, "environment", "settings", "reading"
    )
    assert render.recommendation(small).split(",")[0] in comparison_page
    assert comparison_page.index("Recommendation:") < comparison_page.index("<dt>Fastest")
    library = small.allocator(small.analysis.recommended).path
    assert f"LD_PRELOAD={library} " in comparison_page
    # An experiment's answer is another, and reported figures are set apart.
    assert_in_order(experiment_page, "answer", "results", "s-sweep-seconds", "s-ratios")
    assert re.search('id="(counted-at|reported)', experiment_page)
    assert "Recommendation" not in experiment_page


# --- escaping -------------------------------------------------------------------------------------

NASTY = "<script>alert(1)</script>&\"'\x1b[31m\udcff\u202e]]>--><b>\x00{{ 7*7 }}"


def nasty(small):
    """The text in every field that comes from outside: command, names, versions, output,
    warnings."""
    old, new = small.analysis.rows[1].allocator, f"n{NASTY}"
    text = records.to_json(Study.of("compare", [small])).replace(json.dumps(old), json.dumps(new))
    checked = json.dumps(records.with_checksum(json.loads(text)))
    named = study.from_json(checked, "results").comparison
    return replace(
        fixtures.failing(named, NASTY),
        command=[NASTY, NASTY],
        allocators=[replace(i, version=NASTY, path=f"/{NASTY}") for i in named.allocators],
        settings=replace(named.settings, setup=NASTY),
        machine=replace(named.machine, cpu=NASTY),
    )


def test_odd_text_is_shown_and_never_obeyed(small, tmp_path):
    odd = nasty(small)
    page = html.render(writing.of(odd))
    outline = Outline(page)
    assert outline.stack == []
    assert len(scripts_of(page)) == 1, "ours"
    assert "<script>alert(1)" not in page
    assert "<script>alert(1)</script>&" in "".join(outline.text)
    assert "{{ 7*7 }}" in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", page)
    page.encode()
    written = report.write(odd, tmp_path / "r")
    assert written.read_bytes().startswith(b"<!DOCTYPE html>")
    assert "\\udcff" in (tmp_path / "r" / "runs.csv").read_text(encoding="utf-8")


def test_data_of_figures_cannot_end_their_element():
    name = "</script><script>alert(1)</script><!--"
    panel = {"data": {"values": [{"series": name}]}, "encoding": {}}
    figure = Figure("f", name, name, [panel], table_of(name, (name,), [[name]]))
    page = html.render(Page(name, name, name, [Section(name, [figure])]))
    assert Outline(page).stack == []
    assert len(scripts_of(page)) == 1
    assert data_of(page)[0]["data"] == {"columns": {"series": [name]}}


# --- size --------------------------------------------------------------------------------------


# A page must be easy to mail and quick to open.
LIMIT_BYTES = 1_500_000


@pytest.mark.long
@pytest.mark.parametrize("name", [None, *sorted(fixtures.SHIPPED)])
def test_results_of_all_allocators_stay_small(name):
    made = fixtures.experimented(name) if name else fixtures.compared(25, 15)
    assert len(html.render(writing.of(made)).encode()) < LIMIT_BYTES


# --- the folder -----------------------------------------------------------------------------------


FILES = {"index.html", "results.json", "results.md", "runs.csv", folder.LIST}


def listing(path):
    return {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def two():
    """Two experiments of one run."""
    names = ("x6-iterations", "x3-churn-pairs")
    made = [fixtures.experimented(name, ("tsmalloc", "glibc"), 3) for name in names]
    return fixtures.in_one_run(*made)


def test_report_of_one_result(small, tmp_path):
    page = report.write(small, tmp_path / "r")
    assert page == tmp_path / "r" / "index.html"
    assert listing(tmp_path / "r") == FILES
    csv = (tmp_path / "r" / "runs.csv").read_text(encoding="utf-8")
    assert len(csv.splitlines()) == 1 + len(small.samples)
    assert report.read(tmp_path / "r" / "results.json") == Study.of("compare", [small])


def test_reports_of_several_results_have_a_page_that_leads_to_them(small, two, tmp_path):
    target = tmp_path / "r"
    text = report.write([small, two], target).read_text(encoding="utf-8")
    links = {v["href"] for v in Outline(text).all("a") if not v["href"].startswith("#")}
    assert len(links) == 3
    assert all((target / link).is_file() for link in links)
    # A later report replaces this one, and nothing else.
    (target / "notes.txt").write_text("mine")
    report.write(small, target)
    assert listing(target) == FILES | {"notes.txt"}
    assert (target / "notes.txt").read_text() == "mine"


def test_foreign_folder_is_left_alone(small, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "index.html").write_text("mine, too")
    with refused(str(tmp_path), remedy="--force"):
        report.write(small, tmp_path)
    assert (tmp_path / "index.html").read_text() == "mine, too"
    report.write(small, tmp_path, force=True)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_list_of_files_cannot_lead_out_of_the_folder(small, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("stays")
    target = tmp_path / "r"
    report.write(small, target)
    (target / folder.LIST).write_text(f"../victim\n{victim}\n")
    report.write(small, target)
    assert victim.read_text() == "stays"


# --- the verb -------------------------------------------------------------------------------------


def test_verb_writes_a_report(small, tmp_path, capsys):
    file = tmp_path / "results.json"
    file.write_text(records.to_json(Study.of("compare", [small])))
    assert cli.main(["report", str(file), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'index.html'}\n"


def test_verb_names_what_is_no_result(tmp_path, capsys):
    cases = {
        "a": ("no json", "JSON"),
        "b": ("{}", "schema"),
        "c": ('{"schema": "tsmalloc-study/9"}', "'tsmalloc-study/9'"),
        "d": ("[1]", "schema"),
        "missing": (None, "no such file"),
    }
    for name, (text, words) in cases.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        assert cli.main(["report", str(tmp_path / name), "-o", str(tmp_path / "out")]) == 1
        mentions(capsys.readouterr().err, name, words, "--export-json")
    assert not (tmp_path / "out").exists()


def test_working_folder_that_is_gone_is_named(small, tmp_path, monkeypatch):
    (tmp_path / "r").write_text(records.to_json(Study.of("compare", [small])))
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with refused("working directory"):
        report.write(report.read(tmp_path / "r"), Path("page"))


# --- at the end of a measurement ------------------------------------------------------------------


def published(page, folder=None):
    """Publishes results without saving them; returns whether anything failed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "report", lambda *_: "the table\n")
        patch.setattr(records, "save", lambda _: Path("/kept it/here.json"))
        given = {"as_json": False, "quiet": False, "verbose": False, "force": False}
        return publish(Study.of("compare", [page]), [], {**given, "report": folder})


def test_measurement_offers_a_report_or_writes_it(small, tmp_path, capsys):
    assert not published(small)
    assert "tsmalloc report '/kept it/here.json'" in capsys.readouterr().err
    assert not published(small, tmp_path / "r")
    said = capsys.readouterr().err
    assert f"report     {tmp_path / 'r' / 'index.html'}" in said
    assert "tsmalloc report" not in said
    assert (tmp_path / "r" / "index.html").is_file()


def test_report_that_cannot_be_written_does_not_lose_the_results(small, tmp_path, capsys):
    (tmp_path / "mine").write_text("")
    assert published(small, tmp_path)
    said = capsys.readouterr()
    assert said.out == "the table\n"
    mentions(said.err, "/kept it/here.json", "--force")


def test_drawing_is_loaded_only_by_who_writes_a_report():
    code = (
        "import sys; import tsmlab.commands.compare, tsmlab.commands.report, tsmlab.report;"
        "sys.exit('jinja2' in sys.modules)"
    )
    ran(sys.executable, "-c", code, status=0)
