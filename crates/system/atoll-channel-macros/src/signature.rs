//! The number that both ends of an interface compare, made of the name and all methods.
//!
//! Used by `generate.rs`. It is computed from the words as they are written, with one space between two, as compilers differ in
//! how they print them.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;

use crate::parse::{Interface, Method};

/// The XXH3 hash of the canonical text.
pub(crate) fn hash(interface: &Interface) -> u64 {
    xxhash_rust::xxh3::xxh3_64(text(interface).as_bytes())
}

/// The canonical text: a line for the name and one for each method, in their order. Names of arguments are left out, as they
/// are not sent.
pub(crate) fn text(interface: &Interface) -> String {
    let mut text = format!("{}\n", plain(&interface.item.ident.to_string()));
    for method in &interface.methods {
        text.push_str(&line(method));
    }
    text
}

fn line(method: &Method) -> String {
    let arguments: Vec<String> = method.arguments.iter().map(|(_, of)| words(of.to_token_stream())).collect();
    let kind = if method.oneway { "oneway " } else { "" };
    let result = method.result.as_ref().map_or_else(|| "( )".to_owned(), |of| words(of.to_token_stream()));
    format!("{kind}{}({}) {result}\n", plain(&method.name.to_string()), arguments.join(", "))
}

/// A name without the `r#` of a raw identifier.
pub(crate) fn plain(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}

fn words(tokens: TokenStream) -> String {
    let mut all = Vec::new();
    collect(tokens, &mut all);
    all.join(" ")
}

fn collect(tokens: TokenStream, all: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    // A group that another macro put around its argument, which nobody wrote.
                    Delimiter::None => {
                        collect(group.stream(), all);
                        continue;
                    }
                };
                all.push(open.to_owned());
                collect(group.stream(), all);
                all.push(close.to_owned());
            }
            TokenTree::Ident(name) => all.push(name.to_string()),
            TokenTree::Punct(sign) => all.push(sign.as_char().to_string()),
            TokenTree::Literal(literal) => all.push(literal.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(methods: &str) -> Interface {
        let item = format!("pub trait Some {{ {methods} }}");
        Interface::parse("version = 1".parse().unwrap(), item.parse().unwrap())
            .unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn the_text_has_every_word_and_no_other() {
        let interface = parse(
            "/// Documentation.
             fn r#match(&mut self, number:u64, list : Vec< [ u8;4 ] >)->Result<u64,some::Error>;
             #[oneway] fn note(&self, text: &str);
             fn find(&mut self, name: String, answer: Answer<u8>);",
        );
        let expected = "Some\n\
            match(u64, Vec < [ u8 ; 4 ] >) Result < u64 , some : : Error >\n\
            oneway note(& str) ( )\n\
            find(String) u8\n";
        assert_eq!(text(&interface), expected);
        // Both ends must compute the same number, whatever compiler they were built by.
        assert_eq!(hash(&interface), xxhash_rust::xxh3::xxh3_64(expected.as_bytes()));
        assert_eq!(hash(&parse("fn f(&self);")), 0x579200434693ebee);
    }

    #[test]
    fn what_does_not_travel_does_not_count_and_what_does_counts() {
        let of = |methods| hash(&parse(methods));
        let one = of("fn f(&mut self, a: u8) -> u8;");
        assert_eq!(one, of("/// Does it.\n fn f(&self, b: u8) -> u8 { b }"));
        for other in [
            "fn g(&mut self, a: u8) -> u8;",
            "fn f(&mut self, a: u16) -> u8;",
            "fn f(&mut self, a: u8) -> u16;",
            "fn f(&mut self, a: u8);",
            "fn f(&mut self, a: u8, b: u8) -> u8;",
            "fn f(&mut self, a: u8) -> u8; fn g(&self);",
        ] {
            assert_ne!(one, of(other), "{other}");
        }
        assert_ne!(of("fn f(&self); fn g(&self);"), of("fn g(&self); fn f(&self);"));
        assert_ne!(of("fn f(&self);"), of("#[oneway] fn f(&self);"));
        // A service may give the result later without the client's knowing.
        assert_eq!(one, of("fn f(&mut self, a: u8, answer: Answer<u8>);"));
    }
}
