//! The page as a file: a template, a style, a script, the data and the chart library, in one.
//!
//! Nothing of the program's is ever markup or script. Its names are in the data alone, a JSON block that no name can end (`<`,
//! `>` and `&` are escaped), and the script puts them on the page as text. The page's policy lets only the two scripts run
//! whose hashes it names, and lets the page load nothing at all.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::ReportError;
use crate::content::Content;
use crate::library;

const TEMPLATE: &str = include_str!("../assets/report.html");
const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");

/// Writes the page.
///
/// # Errors
/// See [`ReportError`].
pub(crate) fn write(content: &Content, mut to: impl Write) -> Result<(), ReportError> {
    let library = library::plotly_js()?;
    let policy = format!(
        "default-src 'none'; script-src {} {}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(&library)
    );
    let mut rest = TEMPLATE;
    while let Some((before, behind)) = rest.split_once("{{") {
        let (name, after) = behind.split_once("}}").unwrap_or((behind, ""));
        to.write_all(before.as_bytes())?;
        match name {
            "policy" => to.write_all(policy.as_bytes())?,
            "title" => to.write_all(escaped(&content.title).as_bytes())?,
            "style" => to.write_all(STYLE.as_bytes())?,
            "script" => to.write_all(SCRIPT.as_bytes())?,
            "data" => to.write_all(json(content)?.as_bytes())?,
            "library" => to.write_all(packed(&library)?.as_bytes())?,
            _ => {}
        }
        rest = after;
    }
    to.write_all(rest.as_bytes())?;
    to.flush()?;
    Ok(())
}

/// Returns a script's hash, as a policy names it.
fn hash(script: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(script.as_bytes())))
}

fn packed(text: &str) -> Result<String, ReportError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes())?;
    Ok(STANDARD.encode(encoder.finish()?))
}

/// Returns text escaped for HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Returns JSON that can stand in a script element. The escaped characters occur in strings only, where they can be written so.
fn json(value: &impl Serialize) -> Result<String, ReportError> {
    let plain = serde_json::to_string(value)?;
    let mut out = String::with_capacity(plain.len() + plain.len() / 64);
    for c in plain.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_script_cannot_end_early() {
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("<!--"));
        assert!(!STYLE.contains("</style"));
    }

    proptest! {
        #[test]
        fn no_text_leaves_its_place(text in "\\PC*") {
            let json = json(&text).expect("json");
            prop_assert!(!json.contains(['<', '>', '&']));
            prop_assert_eq!(serde_json::from_str::<String>(&json).expect("json"), &text[..]);
            let html = escaped(&text);
            prop_assert!(!html.contains(['<', '>', '"', '\'']));
        }
    }
}
