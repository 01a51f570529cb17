//! Tables of text.

use std::fmt::Write as _;

/// Returns rows in columns; the first to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column| {
        rows.iter().filter_map(|row| row.get(column)).map(|t: &String| t.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, text) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - text.chars().count());
            let _ = match column {
                0 => write!(line, "  {text}{pad}"),
                _ => write!(line, "  {pad}{text}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_in_line() {
        let rows = [vec!["a".to_owned(), "1.5".to_owned()], vec!["long".to_owned(), "10".to_owned()]];
        assert_eq!(table(&rows), "  a     1.5\n  long   10\n");
    }
}
