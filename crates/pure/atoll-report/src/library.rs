//! The chart library: plotly.js (MIT), which the crate `plotly` carries as a file.
//!
//! `html` puts it into the report, compressed. The crate returns HTML that also loads MathJax, which no chart here needs, so
//! only the library's own script is taken.

use plotly::Plot;

use crate::ReportError;

/// The beginning of the library's script.
const HEAD: &str = "* plotly.js v";
/// The tag that the crate puts before each script.
const TAG: &str = "<script type=\"text/javascript\">";

/// Returns the library's script.
///
/// # Errors
/// The crate holds the script in another form than this code was written for.
pub(crate) fn plotly_js() -> Result<String, ReportError> {
    let html = Plot::offline_js_sources();
    // The library's script comes first, MathJax's last.
    let own = html.split_once(TAG).and_then(|(_, behind)| behind.rsplit_once(TAG)).map(|(own, _)| own);
    let script = own.and_then(|own| own.rsplit_once("</script>")).map(|(script, _)| script);
    let script = script
        .filter(|s| s.get(..100).is_some_and(|head| head.contains(HEAD)))
        .ok_or(ReportError::Library)?;
    Ok(script.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_all_of_the_library_and_nothing_else() {
        let script = plotly_js().expect("the library");
        assert!(script.len() > 3_000_000, "{}", script.len());
        assert!(script.contains("Licensed under the MIT license"));
        let foot = script.get(script.len() - 200..).expect("text");
        assert!(foot.contains("Plotly"), "{foot}");
    }
}
