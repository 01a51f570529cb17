//! The attribute `interface`: makes a trait an interface, and the stubs of both its ends.
//!
//! Used through `atoll_channel::interface`, which documents what it generates; `parse.rs` says which traits are interfaces,
//! `generate.rs` writes the stubs, `signature.rs` computes the number that both ends compare.
//!
//! Source: the barrelfish paper (`papers/barrelfish-xeon-phi.txt`), section 3.4 (Flounder).

mod generate;
mod parse;
#[cfg(test)]
mod refused;
mod signature;

// The documentation is at `atoll_channel::interface`, through which the attribute is used.
#[allow(missing_docs, reason = "written at `atoll_channel::interface`")]
#[proc_macro_attribute]
pub fn interface(
    attribute: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    match parse::Interface::parse(attribute.into(), item.into()) {
        Ok(interface) => generate::generate(&interface).into(),
        Err(e) => e.into_compile_error().into(),
    }
}
