//! The attribute `interface`: makes a trait an interface, and the stubs of both its ends.
//!
//! Used through `atoll_channel::interface`, which documents what it generates; `parse.rs` says what is an interface,
//! `generate.rs` writes the stubs, `signature.rs` what both ends compare.
//!
//! Source: the barrelfish paper (`papers/barrelfish-xeon-phi.txt`), section 3.4 (Flounder).

mod generate;
mod parse;
#[cfg(test)]
mod refused;
mod signature;

// Documented where it is used from: `atoll_channel::interface`.
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
