//! Tests that `docs/coherence.md` prints the tables as they are.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::path::Path;

/// The text with the part between `<!-- NAME -->` and `<!-- end -->` replaced.
fn with_table(text: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), "<!-- end -->");
    let from = text.find(&begin).expect("the document has a place for each table") + begin.len();
    let to = from + text[from..].find(end).expect("each table ends");
    format!("{}{table}{}", &text[..from], &text[to..])
}

#[test]
fn the_document_prints_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/coherence.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let now = with_table(&text, "copies", &atoll_coherence::copy::markdown());
    let now = with_table(&now, "directory", &atoll_coherence::directory::markdown());
    if std::env::var_os("ATOLL_BLESS").is_some() {
        std::fs::write(&path, &now).unwrap();
    } else {
        assert!(
            now == text,
            "docs/coherence.md is behind the tables: ATOLL_BLESS=1 cargo test -p atoll-coherence --test document"
        );
    }
}
