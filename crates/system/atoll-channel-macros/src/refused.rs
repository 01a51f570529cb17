//! Tests of `parse.rs` on tokens: which traits are accepted as interfaces and which are refused.

use proc_macro2::TokenStream;
use quote::ToTokens;

use crate::parse::Interface;

fn parse(attribute: &str, item: &str) -> Result<Interface, String> {
    let parse = |text: &str| text.parse::<TokenStream>().unwrap();
    Interface::parse(parse(attribute), parse(item)).map_err(|e| e.to_string())
}

/// The reason why a trait with this method is refused.
fn refused(method: &str) -> String {
    let item = format!("trait T {{ {method} }}");
    parse("version = 1", &item).err().unwrap_or_else(|| panic!("{method} was taken"))
}

#[test]
fn a_trait_is_taken_apart() {
    let item = "
        /// A trait.
        pub trait Some: Send {
            /// First.
            fn first(&mut self);
            fn second(&self, one: Cow<'_, str>, two: Option<&str>) -> Result<Vec<u8>, String>;
            /// Third.
            #[oneway]
            #[inline]
            fn third(&mut self, bytes: &[u8]) {}
            fn fourth(&mut self, text: &str, answer: atoll_channel::Answer<u32>);
        }";
    let parsed = parse("version = 7", item).unwrap();
    assert_eq!(parsed.version, 7);
    let seen: Vec<_> = parsed
        .methods
        .iter()
        .map(|method| {
            let result = method.result.as_ref().map(|of| of.to_token_stream().to_string().replace(' ', ""));
            let (docs, arguments) = (method.docs.len(), method.arguments.len());
            (method.name.to_string(), docs, method.oneway, arguments, result, method.later)
        })
        .collect();
    let expected = [
        ("first", 1, false, 0, None, false),
        ("second", 0, false, 2, Some("Result<Vec<u8>,String>"), false),
        ("third", 1, true, 1, None, false),
        ("fourth", 0, false, 1, Some("u32"), true),
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(name, docs, oneway, arguments, result, later)| {
            (name.to_owned(), docs, oneway, arguments, result.map(str::to_owned), later)
        })
        .collect();
    assert_eq!(seen, expected);
    // Attributes meant for the macro are gone, others stay.
    let written = parsed.item.to_token_stream().to_string();
    assert!(!written.contains("oneway") && written.contains("inline"));
}

#[test]
fn the_version_must_be_said() {
    for attribute in ["", "1", "version", "version = ", "version = x", "versions = 1", "version = 1, x"] {
        let why = parse(attribute, "trait T { fn f(&self); }").err().unwrap();
        assert!(why.contains("version = 1") || why.contains("expected"), "{attribute}: {why}");
    }
    assert!(parse("version = 5000000000", "trait T { fn f(&self); }").is_err());
}

#[test]
fn what_cannot_be_called_from_elsewhere_is_refused_with_a_reason() {
    let refusals = [
        ("async fn f(&self);", "async"),
        ("unsafe fn f(&self);", "plain `fn`"),
        ("extern \"C\" fn f(&self);", "plain `fn`"),
        ("fn f<T>(&self, t: T);", "generic"),
        ("fn f<'a>(&self, t: &'a str);", "generic"),
        ("fn f(&self) where u8: Copy;", "generic"),
        ("fn f();", "&mut self"),
        ("fn f(x: u8);", "&mut self"),
        ("fn f(self);", "&mut self"),
        ("fn f(mut self);", "&mut self"),
        ("fn f(self: Box<Self>);", "&mut self"),
        ("fn f(&self, x: &mut u8);", "another address space"),
        ("fn f(&self, x: &u8);", "by value"),
        ("fn f(&self, x: &'static str);", "lifetime"),
        ("fn f(&self, x: Option<&'static str>);", "lifetime"),
        ("fn f(&self, (x, y): (u8, u8));", "no patterns"),
        ("fn f(&self, _: u8);", "no patterns"),
        ("fn f(&self, mut x: u8) {}", "no patterns"),
        ("fn f(&self, x: impl Clone);", "impl"),
        ("fn f(&self, x: Box<dyn Fn()>);", "dyn"),
        ("fn f(&self) -> impl Clone;", "impl"),
        ("fn f(&self) -> &str;", "by value"),
        ("fn f(&self) -> Option<&[u8]>;", "by value"),
        ("fn f(&self) -> Cow<'_, str>;", "by value"),
        ("fn f(&self) -> Self;", "Self"),
        ("fn f(&self, x: Self::Item);", "Self"),
        ("#[oneway] fn f(&self) -> u8;", "returns nothing"),
        ("#[oneway] fn f(&self, answer: Answer<u8>);", "returns nothing"),
        ("fn f(&self, answer: Answer<u8>) -> u8;", "not by both"),
        ("#[cfg(test)] fn f(&self);", "built differently"),
        ("fn bind(&self);", "choose another"),
        ("type Item;", "methods only"),
        ("const N: u8;", "methods only"),
        ("", "from 1 to 32767 methods"),
        (
            "fn f(&self, a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8, \
             m: u8, n: u8, o: u8, p: u8, q: u8);",
            "at most 16",
        ),
    ];
    for (method, why) in refusals {
        let said = refused(method);
        assert!(said.contains(why), "{method}: {said}");
    }
    for (item, why) in [
        ("trait T<A> { fn f(&self, a: A); }", "generic"),
        ("unsafe trait T { fn f(&self); }", "unsafe"),
        ("struct T;", "an interface is a trait"),
        ("fn f() {}", "an interface is a trait"),
    ] {
        let said = parse("version = 1", item).err().unwrap();
        assert!(said.contains(why), "{item}: {said}");
    }
    let long = format!("trait T{} {{ fn f(&self); }}", "t".repeat(128));
    assert!(parse("version = 1", &long).err().unwrap().contains("128 bytes"));
}
