//! Compares `docs/papers.md` with the contents of the papers: each numbered section, figure and table has a line.

use std::collections::{BTreeMap, BTreeSet};

use atoll_e2e::build::root;
use serde::Deserialize;

/// The numbers of one paper.
#[derive(Deserialize)]
struct Contents {
    title: String,
    sections: Vec<String>,
    figures: Vec<String>,
    tables: Vec<String>,
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect(path)
}

/// Returns the cells of the rows of the chapter that begins with `title`: those of the first column, and whole lines.
fn rows<'a>(page: &'a str, title: &str) -> Vec<(&'a str, &'a str)> {
    let chapter = page.split("\n## ").find(|chapter| chapter.starts_with(title)).expect(title);
    let rows = chapter.lines().filter(|line| line.starts_with("| ")).skip(2);
    rows.filter_map(|line| Some((line.split(" | ").next()?.trim_start_matches("| "), line))).collect()
}

#[test]
fn each_numbered_section_figure_and_table_of_the_papers_has_a_line() {
    let page = text("docs/papers.md");
    let papers: BTreeMap<String, Contents> = toml::from_str(&text("papers/contents.toml")).expect("TOML");
    assert_eq!(papers.len(), 5);
    for paper in papers.values() {
        let rows = rows(&page, &paper.title);
        let named: BTreeSet<&str> = rows.iter().flat_map(|(first, _)| first.split(", ")).collect();
        let figures = paper.figures.iter().map(|number| format!("fig. {number}"));
        let tables = paper.tables.iter().map(|number| format!("table {number}"));
        let wanted: BTreeSet<String> = paper.sections.iter().cloned().chain(figures).chain(tables).collect();
        let missing: Vec<_> = wanted.iter().filter(|number| !named.contains(number.as_str())).collect();
        assert!(missing.is_empty(), "{}: docs/papers.md has no line for {missing:?}", paper.title);
        let unknown: Vec<_> = named.iter().filter(|name| **name != "-" && !wanted.contains(**name)).collect();
        assert!(unknown.is_empty(), "{}: the paper has no {unknown:?}", paper.title);
        for (_, line) in rows {
            assert_eq!(line.matches(" | ").count(), 3, "a line has four cells: {line}");
        }
    }
}

#[test]
fn what_stands_for_a_section_is_there() {
    let page = text("docs/papers.md");
    let words = page.split('`').skip(1).step_by(2);
    let paths = words.filter(|word| {
        ["crates/", "programs/", "machines/", "papers/", "benches/", "tests/", "docs/"]
            .iter()
            .any(|folder| word.starts_with(folder))
    });
    let missing: Vec<&str> = paths.filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
