//! A table of measurements: printed, and written as CSV.
//!
//! `output.rs` decides where it goes.

use crate::csv;
use crate::run::summary::write_aligned_behind;

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    /// A number and its digits behind the point.
    Number(f64, usize),
    /// Not measured, or not available.
    Nothing,
}

impl Cell {
    /// Makes a cell of a number, if there is one.
    pub(super) fn number(value: Option<f64>, digits: usize) -> Self {
        value.map_or(Self::Nothing, |value| Self::Number(value, digits))
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value, digits) => format!("{value:.digits$}"),
            Self::Nothing => "-".to_owned(),
        }
    }

    /// Returns the cell for CSV: empty where there is no value.
    fn csv(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            cell => csv::word(&cell.text()),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Self {
        Self { columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row, which must have a cell for each column.
    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Returns the table for a terminal: the first column to the left, the others to the right.
    pub(super) fn text(&self) -> String {
        let mut rows = vec![self.columns.clone()];
        rows.extend(self.rows.iter().map(|row| row.iter().map(Cell::text).collect()));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write_aligned_behind(&mut text, "", &rows);
        text
    }

    /// Returns the table as CSV, with a line of names.
    pub(super) fn csv(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|name| csv::word(name)).collect();
        let mut text = names.join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(Cell::csv).collect();
            text += &(cells.join(",") + "\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_its_csv_quoted() {
        let mut table = Table::new(["memory", "ns"]);
        table.row(vec!["near, \"fast\"".into(), Cell::Number(1.25, 1)]);
        table.row(vec!["far".into(), Cell::Nothing]);
        assert_eq!(table.text(), "memory         ns\nnear, \"fast\"  1.2\nfar             -\n");
        assert_eq!(table.csv(), "memory,ns\n\"near, \"\"fast\"\"\",1.2\nfar,\n");
    }
}
