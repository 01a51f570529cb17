//! Quotes words of comma-separated files.
//!
//! `atoll sweep`, `atoll sim` and `atoll bench` write such files.

/// Returns `text` as a word of such a file: quoted where it must be.
pub(crate) fn word(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
