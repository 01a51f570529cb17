//! Generates the stubs of an interface: the client that calls, and the dispatcher that calls the service.
//!
//! The stubs' behaviour is in `atoll_channel`'s `service/`; here are only the types, so that the generated code stays small.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::Type;

use crate::parse::{Interface, Method};
use crate::signature::{hash, plain};

pub(crate) fn generate(interface: &Interface) -> TokenStream {
    let item = &interface.item;
    let client = client(interface);
    let service = service(interface);
    quote! {
        #[allow(dead_code, reason = "a program may have one end only")]
        #item
        #client
        #service
    }
}

/// The identity that both ends compare, as an expression.
fn identity(interface: &Interface) -> TokenStream {
    let name = plain(&interface.item.ident.to_string()).to_owned();
    let version = interface.version;
    let signatures = hash(interface);
    quote! {
        ::atoll_channel::Interface { name: #name, version: #version, signatures: #signatures }
    }
}

fn client(interface: &Interface) -> TokenStream {
    let name = &interface.item.ident;
    let plain = plain(&name.to_string()).to_owned();
    let visible = &interface.item.vis;
    let client = format_ident!("{plain}Client");
    let identity = identity(interface);
    let methods = interface.methods.iter().zip(1u16..).map(|(method, number)| call(method, number));
    let docs = format!("Calls a [`{plain}`] at the other end of a link.");
    quote! {
        #[doc = #docs]
        #[allow(dead_code, reason = "a program may have one end only")]
        #visible struct #client<L> {
            caller: ::atoll_channel::__private::Caller<L>,
        }

        #[allow(dead_code, reason = "a program may have one end only")]
        impl<L: ::atoll_channel::Link> #client<L> {
            /// Agrees with the service at the other end of `link` on the interface. This and each later call take at most
            /// `timeout` (`None`: for ever, or until the peer dies or closes).
            pub fn bind(
                link: L,
                timeout: ::core::option::Option<::core::time::Duration>,
            ) -> ::core::result::Result<Self, ::atoll_channel::BindError> {
                let caller = ::atoll_channel::__private::Caller::bind(link, #identity, timeout)?;
                ::core::result::Result::Ok(Self { caller })
            }

            /// Changes the longest time of a call (`None`: for ever).
            pub fn set_timeout(&mut self, timeout: ::core::option::Option<::core::time::Duration>) {
                self.caller.set_timeout(timeout);
            }

            /// Returns the link, on which another client can be bound.
            pub fn into_link(self) -> L {
                self.caller.into_link()
            }

            #(#methods)*
        }
    }
}

/// Generates a client's method.
fn call(method: &Method, number: u16) -> TokenStream {
    let Method { name, docs, oneway, arguments, result, .. } = method;
    let names: Vec<_> = arguments.iter().map(|(name, _)| name).collect();
    let types = arguments.iter().map(|(_, of)| of);
    let returned = result.as_ref().map_or_else(|| quote!(()), |of| quote!(#of));
    let here = here(method);
    let how = Ident::new(if *oneway { "notify" } else { "call" }, here);
    let text = plain(&name.to_string()).to_owned();
    let values = arguments.iter().map(|(name, of)| Shape::of(of).encoded(&quote!(#name), here));
    let call = quote_spanned!(here=> self.caller.#how(#number, #text, &(#(#values,)*)));
    // A vector of bytes is read at once.
    let call = match result {
        Some(of) if Shape::of(of) == Shape::Vector => {
            let read = Shape::Vector.decoded(of);
            let value = Shape::Vector.value(&quote!(answer));
            quote!(#call.map(|answer: #read| #value))
        }
        _ => call,
    };
    quote! {
        #(#docs)*
        pub fn #name(
            &mut self,
            #(#names: #types),*
        ) -> ::core::result::Result<#returned, ::atoll_channel::CallError> {
            #call
        }
    }
}

/// The span at which the compiler reports errors of a type: the method that has it.
fn here(method: &Method) -> Span {
    Span::call_site().located_at(method.name.span())
}

/// The ways in which an argument or result is encoded. Bytes are written and read at once, not one by one as serde does slices
/// and vectors; the encoding is the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `&[u8]`
    Slice,
    /// `Vec<u8>`
    Vector,
    Other,
}

impl Shape {
    fn of(written: &Type) -> Shape {
        match written.to_token_stream().to_string().replace(' ', "").as_str() {
            "&[u8]" => Shape::Slice,
            "Vec<u8>" => Shape::Vector,
            _ => Shape::Other,
        }
    }

    /// The expression that is encoded for `value` of this shape.
    fn encoded(self, value: &TokenStream, here: Span) -> TokenStream {
        match self {
            Shape::Slice => quote_spanned!(here=> ::atoll_channel::__private::Bytes::new(#value)),
            Shape::Vector => quote_spanned!(here=> ::atoll_channel::__private::Bytes::new(&#value)),
            Shape::Other => quote_spanned!(here=> &#value),
        }
    }

    /// The type that is decoded for the type `of` of this shape.
    fn decoded(self, of: &Type) -> TokenStream {
        if self == Shape::Vector { quote!(::atoll_channel::__private::ByteBuf) } else { quote!(#of) }
    }

    /// The value of this shape, from the decoded one.
    fn value(self, decoded: &TokenStream) -> TokenStream {
        if self == Shape::Vector { quote!(#decoded.into_vec()) } else { quote!(#decoded) }
    }
}

fn service(interface: &Interface) -> TokenStream {
    let name = &interface.item.ident;
    let plain = plain(&name.to_string()).to_owned();
    let visible = &interface.item.vis;
    let service = format_ident!("{plain}Service");
    let identity = identity(interface);
    let arms = interface.methods.iter().zip(1u16..).map(|(method, number)| arm(interface, method, number));
    let docs = format!("Serves a [`{plain}`]: what a loop that receives calls hands them to.");
    quote! {
        #[doc = #docs]
        #[allow(dead_code, reason = "a program may have one end only")]
        #visible struct #service<'a, S: ?::core::marker::Sized>(
            /// The service itself.
            pub &'a mut S,
        );

        impl<S: #name + ?::core::marker::Sized> ::atoll_channel::Dispatch for #service<'_, S> {
            fn interface(&self) -> ::atoll_channel::Interface {
                #identity
            }

            fn dispatch(
                &mut self,
                call: &::atoll_channel::Call<'_>,
                arguments: &[u8],
                reply: &mut ::std::vec::Vec<u8>,
            ) -> ::atoll_channel::Outcome {
                match call.method {
                    #(#arms)*
                    _ => ::atoll_channel::Outcome::Refuse(::atoll_channel::Refusal::UnknownMethod),
                }
            }
        }
    }
}

/// Generates the code that runs at a call of `method`.
fn arm(interface: &Interface, method: &Method, number: u16) -> TokenStream {
    let of = &interface.item.ident;
    let Method { name, oneway, arguments, later, result, .. } = method;
    let here = here(method);
    // The arguments get generated names, as their own could hide others.
    let names: Vec<_> = (0..arguments.len()).map(|i| format_ident!("argument_{i}")).collect();
    let types = arguments.iter().map(|(_, of)| Shape::of(of).decoded(of));
    let values: Vec<_> =
        names.iter().zip(arguments).map(|(name, (_, of))| Shape::of(of).value(&quote!(#name))).collect();
    let called = quote!(<S as #of>::#name(&mut *self.0, #(#values),*));
    let (bad, good) = if *oneway {
        (
            quote!(HangUp),
            quote!({
                #called;
                ::atoll_channel::Outcome::Nothing
            }),
        )
    } else if *later {
        (
            quote!(Refuse),
            quote!(::atoll_channel::__private::later(call, |answer| {
                <S as #of>::#name(&mut *self.0, #(#values,)* answer)
            })),
        )
    } else {
        let shape = result.as_ref().map_or(Shape::Other, Shape::of);
        let value = shape.encoded(&called, here);
        (quote!(Refuse), quote_spanned!(here=> ::atoll_channel::__private::reply(#value, reply)))
    };
    quote_spanned! {here=>
        #number => match ::atoll_channel::__private::decode::<(#(#types,)*)>(arguments) {
            ::core::result::Result::Ok((#(#names,)*)) => #good,
            ::core::result::Result::Err(_) => {
                ::atoll_channel::Outcome::#bad(::atoll_channel::Refusal::Arguments)
            }
        },
    }
}
