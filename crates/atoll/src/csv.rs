//! Words of comma-separated files.
//!
//! `atoll sweep`, `atoll sim` and `atoll bench` write such files.

/// `text` as a word: quoted where it must be.
pub(crate) fn word(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
