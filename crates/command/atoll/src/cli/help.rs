//! Makes help texts wrap cleanly at any width.
//!
//! clap breaks long lines, but does not keep the indent of lists, and keeps the line breaks of the source. The texts stand in
//! the source as they are to be read, and [`flow`] turns them into what clap gets.

/// The widest line of a list, in characters: it fits into a terminal of 80 columns.
const WIDTH: usize = 78;

/// Joins the lines of each paragraph into one, and breaks the lines of lists anew, behind their indents.
///
/// A line that begins with spaces is an item of a list: a name, two spaces or more, and its text. Lines below it that are
/// indented further continue the text. Where the name stands alone, its text begins below it.
pub(crate) fn flow(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if line.is_empty() {
            out.push(String::new());
            continue;
        }
        let indent = indent_of(line);
        if indent == 0 {
            let mut paragraph = line.to_owned();
            while let Some(next) = lines.get(at).filter(|next| !next.is_empty() && indent_of(next) == 0) {
                paragraph = paragraph + " " + next;
                at += 1;
            }
            out.push(paragraph);
            continue;
        }
        let next = lines.get(at).copied().unwrap_or_default();
        let (mut head, mut words, column) = match column_of(line) {
            Some(column) => (line[..column].to_owned(), line[column..].to_owned(), column),
            // The name stands alone.
            None if indent_of(next) > indent && column_of(next).is_none() => {
                out.push(line.to_owned());
                let column = indent_of(next);
                (" ".repeat(column), String::new(), column)
            }
            None => (line[..indent].to_owned(), line[indent..].to_owned(), indent),
        };
        while let Some(next) = lines.get(at).filter(|next| indent_of(next) >= column && column > indent) {
            words = words + " " + next.trim();
            at += 1;
        }
        for word in words.split_whitespace() {
            if head.trim_end().len() > column && head.len() + word.len() > WIDTH {
                out.push(head.trim_end().to_owned());
                head = " ".repeat(column);
            }
            head += word;
            head.push(' ');
        }
        out.push(head.trim_end().to_owned());
    }
    out.join("\n")
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns the column at which an item's text begins, behind its name.
fn column_of(line: &str) -> Option<usize> {
    let name = indent_of(line);
    let gap = name + line[name..].find("  ")?;
    Some(gap + indent_of(&line[gap..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn paragraphs_are_joined_and_lists_keep_their_columns() {
        let text = "One line\nand another.\n\nA list:\n  a    what a is\n       and more\n  long name\n          below it\n  2    two";
        let flowed = "One line and another.\n\nA list:\n  a    what a is and more\n  long name\n          below it\n  2    two";
        assert_eq!(flow(text), flowed);
        let long = format!("  a    {}", "word ".repeat(30));
        let lines: Vec<String> = flow(&long).lines().map(str::to_owned).collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
        assert!(lines[1].starts_with("       word"), "{lines:?}");
    }

    /// A help text was broken where its source lines ended, and again where the terminal ended.
    #[test]
    fn help_was_wrapped_raggedly() {
        fn check(command: &clap::Command, path: &str) {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = help.lines().collect();
            for pair in lines.windows(2) {
                let broken = pair.iter().all(|line| !line.is_empty() && indent_of(line) == 0);
                assert!(!broken, "{path}: {pair:?}");
            }
            let wide = lines.iter().find(|line| indent_of(line) > 0 && line.len() > WIDTH);
            assert_eq!(wide, None, "{path}");
            for below in command.get_subcommands() {
                check(below, &format!("{path} {}", below.get_name()));
            }
        }
        check(&Cli::command(), "atoll");
    }
}
