//! Takes the words of a script's first line apart, which the kernel hands over as one: `#!/usr/bin/atoll run --near 2G -- /usr/bin/python3`.
//!
//! Used before the flags are read, which `cli` defines.

use std::ffi::OsString;

/// The words of a command line, where a first word that begins with `run` and a blank counts as several.
pub(crate) fn words(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = line.into_iter().collect();
    let first = words.get(1).and_then(|word| word.to_str()).filter(|word| word.starts_with("run "));
    if let Some(first) = first.map(str::to_owned) {
        words.splice(1..2, first.split_ascii_whitespace().map(OsString::from));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scripts_first_line_is_several_words_and_others_stay() {
        let taken = |line: &[&str]| words(line.iter().map(OsString::from));
        assert_eq!(
            taken(&["atoll", "run --near 2G -- /bin/sh", "a script"]),
            ["atoll", "run", "--near", "2G", "--", "/bin/sh", "a script"]
        );
        assert_eq!(taken(&["atoll", "run", "a b"]), ["atoll", "run", "a b"]);
        assert_eq!(taken(&["atoll"]), ["atoll"]);
    }
}
