//! Parses an interface: a trait with methods that can be called from another address space, and nothing else.
//!
//! `generate.rs` makes the stubs. Everything that is refused has a message that says what to write instead.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, ItemTrait, LitInt, Pat, PathArguments, ReceiverKind,
    ReturnType, Safety, Token, TraitItem, Type,
};

/// The most arguments of a method, which is the length of serde's longest tuple.
const MOST_ARGUMENTS: usize = 16;
/// The most methods. They are numbered from 1, and the top bit says that a message is a reply.
const MOST_METHODS: usize = 0x7fff;
/// The names of the methods that every client has besides the interface's.
const RESERVED: [&str; 3] = ["bind", "set_timeout", "into_link"];

/// A trait that is an interface.
pub(crate) struct Interface {
    /// The trait, without the attributes that are meant for this macro.
    pub(crate) item: ItemTrait,
    /// The number in `version = 1`.
    pub(crate) version: u32,
    pub(crate) methods: Vec<Method>,
}

/// A method of an interface.
pub(crate) struct Method {
    pub(crate) name: Ident,
    /// The method's documentation and conditions.
    pub(crate) docs: Vec<Attribute>,
    /// Whether the method has no answer, so that the client does not wait.
    pub(crate) oneway: bool,
    pub(crate) arguments: Vec<(Ident, Type)>,
    /// The type of the result; `None` for `()`.
    pub(crate) result: Option<Type>,
    /// Whether the result is given to an `Answer` in the last argument, which is not among `arguments`, instead of being
    /// returned.
    pub(crate) later: bool,
}

impl Interface {
    pub(crate) fn parse(attribute: TokenStream, item: TokenStream) -> syn::Result<Interface> {
        let version = version(attribute)?;
        let mut item: ItemTrait = syn::parse2(item)
            .map_err(|e| Error::new(e.span(), format!("an interface is a trait with methods: {e}")))?;
        item.modifiers.require_empty()?;
        let refused: [(bool, Span, &str); 3] = [
            (item.unsafety.is_some(), item.unsafety.span(), "an interface cannot be unsafe"),
            (
                !item.generics.params.is_empty() || item.generics.where_clause.is_some(),
                item.generics.span(),
                "an interface cannot be generic: both ends must know every type",
            ),
            (name_is_too_long(&item.ident), item.ident.span(), "an interface's name has at most 128 bytes"),
        ];
        for (is, span, why) in refused {
            if is {
                return Err(Error::new(span, why));
            }
        }
        let mut methods = Vec::new();
        for part in &mut item.items {
            let TraitItem::Fn(method) = part else {
                return Err(Error::new(
                    part.span(),
                    "an interface has methods only: no types, constants or macros",
                ));
            };
            methods.push(Method::parse(method)?);
        }
        if methods.is_empty() || methods.len() > MOST_METHODS {
            return Err(Error::new(
                item.ident.span(),
                format!("an interface has from 1 to {MOST_METHODS} methods"),
            ));
        }
        Ok(Interface { item, version, methods })
    }
}

fn name_is_too_long(name: &Ident) -> bool {
    name.to_string().len() > 128
}

/// Parses the `version = 1` of the attribute.
fn version(attribute: TokenStream) -> syn::Result<u32> {
    const HOW: &str = "say which version of the interface this is: #[interface(version = 1)]";
    let parse = |input: syn::parse::ParseStream<'_>| {
        let name: Ident = input.parse().map_err(|e| Error::new(e.span(), HOW))?;
        if name != "version" {
            return Err(Error::new(name.span(), HOW));
        }
        input.parse::<Token![=]>()?;
        let number: LitInt = input.parse().map_err(|e| Error::new(e.span(), HOW))?;
        if !input.is_empty() {
            return Err(input.error(HOW));
        }
        number.base10_parse::<u32>()
    };
    syn::parse::Parser::parse2(parse, attribute)
}

impl Method {
    fn parse(method: &mut syn::TraitItemFn) -> syn::Result<Method> {
        let signature = &method.sig;
        let name = signature.ident.clone();
        let refuse = |span: Span, why: &str| Err(Error::new(span, why));
        if signature.asyncness.is_some() {
            return refuse(
                signature.asyncness.span(),
                "a method of an interface cannot be async: a service is called by its loop",
            );
        }
        if !matches!(signature.safety, Safety::Default)
            || signature.constness.is_some()
            || signature.abi.is_some()
        {
            return refuse(signature.span(), "a method of an interface is a plain `fn`");
        }
        if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
            return refuse(
                signature.generics.span(),
                "a method of an interface cannot be generic: both ends must know every type",
            );
        }
        if RESERVED.contains(&name.to_string().as_str()) {
            return refuse(
                name.span(),
                "every client has a method of this name (`bind`, `set_timeout`, `into_link`): choose another",
            );
        }

        let mut arguments = Vec::new();
        let mut has_self = false;
        for argument in &signature.inputs {
            match argument {
                FnArg::Receiver(receiver) => {
                    has_self = true;
                    if !matches!(receiver.kind, ReceiverKind::Reference(..)) {
                        return refuse(
                            receiver.span(),
                            "a method of an interface takes `&mut self` or `&self`",
                        );
                    }
                }
                FnArg::Typed(typed) => {
                    let Pat::Ident(pattern) = &*typed.pat else {
                        return refuse(
                            typed.pat.span(),
                            "an argument of an interface is a name: no patterns",
                        );
                    };
                    if pattern.by_ref.is_some() || pattern.mutability.is_some() || pattern.subpat.is_some() {
                        return refuse(
                            typed.pat.span(),
                            "an argument of an interface is a name: no patterns",
                        );
                    }
                    arguments.push((pattern.ident.clone(), (*typed.ty).clone()));
                }
            }
        }
        if !has_self {
            return refuse(signature.span(), "a method of an interface takes `&mut self` or `&self`");
        }
        if arguments.len() > MOST_ARGUMENTS {
            return refuse(
                signature.inputs.span(),
                "a method of an interface takes at most 16 arguments: put some into a struct",
            );
        }
        let awaited = arguments.last().and_then(|(_, of)| awaited(of));
        let later = awaited.is_some();
        let result = match &signature.output {
            ReturnType::Type(_, of) if later => {
                return refuse(of.span(), "a method answers by its result or by an `Answer`, not by both");
            }
            ReturnType::Default if later => {
                arguments.pop();
                awaited
            }
            ReturnType::Default => None,
            ReturnType::Type(_, of) => Some((**of).clone()),
        };

        for (_, of) in &arguments {
            check_argument(of)?;
        }
        if let Some(of) = &result {
            check_result(of)?;
        }

        let before = method.attrs.len();
        let span = method.span();
        method.attrs.retain(|attribute| !attribute.path().is_ident("oneway"));
        let oneway = method.attrs.len() < before;
        if oneway && result.is_some() {
            return refuse(span, "a oneway method has no answer: it returns nothing");
        }
        if let Some(condition) = method
            .attrs
            .iter()
            .find(|attribute| attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr"))
        {
            return refuse(
                condition.span(),
                "a method of an interface is there or not: the two ends may be built differently",
            );
        }
        let docs =
            method.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
        Ok(Method { name, docs, oneway, arguments, result, later })
    }
}

/// The `T` of an `Answer<T>`; `None` for other types.
fn awaited(of: &Type) -> Option<Type> {
    let Type::Path(path) = of else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Answer")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(of)) if arguments.args.len() == 1 => Some(of.clone()),
        _ => None,
    }
}

/// Checks that an argument can be sent, as far as its written type shows.
fn check_argument(of: &Type) -> syn::Result<()> {
    if let Type::Reference(reference) = of {
        if reference.mutability.is_some() {
            return Err(Error::new(
                of.span(),
                "an argument cannot be changed in another address space: return what has changed",
            ));
        }
        let written = reference.elem.to_token_stream().to_string().replace(' ', "");
        if reference.lifetime.is_none() && written != "str" && written != "[u8]" {
            return Err(Error::new(
                of.span(),
                "of references only `&str` and `&[u8]` can be arguments: take the others by value",
            ));
        }
    }
    check_words(of.to_token_stream(), true)
}

/// Checks that a result can be sent.
fn check_result(of: &Type) -> syn::Result<()> {
    check_words(of.to_token_stream(), false)
}

/// Checks for words that no type of an interface may contain; only an argument may borrow.
fn check_words(tokens: TokenStream, may_borrow: bool) -> syn::Result<()> {
    const BORROWS: &str =
        "a result cannot borrow from the service, which is in another address space: return it by value";
    const NAMED: &str = "a type of an interface has no named lifetime: arguments live as long as the call";
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let why = match &token {
            TokenTree::Group(group) => {
                check_words(group.stream(), may_borrow)?;
                continue;
            }
            TokenTree::Punct(sign) if sign.as_char() == '&' && !may_borrow => BORROWS,
            TokenTree::Punct(sign) if sign.as_char() == '\'' => match tokens.peek() {
                Some(TokenTree::Ident(name)) if name == "_" && may_borrow => continue,
                Some(TokenTree::Ident(name)) if name == "_" => BORROWS,
                _ => NAMED,
            },
            TokenTree::Ident(name) if name == "impl" || name == "dyn" => {
                "a type of an interface is known at both ends: neither `impl` nor `dyn`"
            }
            TokenTree::Ident(name) if name == "Self" => {
                "`Self` is another type at every service: name a type that both ends know"
            }
            _ => continue,
        };
        return Err(Error::new(token.span(), why));
    }
    Ok(())
}
