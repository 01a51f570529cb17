//! Writes the stubs of an interface: the client that calls, and the service's side that is called.
//!
//! What they do is in `atoll_channel`'s `service/`; here are only the types, so that the generated code stays small.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::Type;

use crate::parse::{Interface, Method};
use crate::signature::{hash, plain};

pub(crate) fn generate(interface: &Interface) -> TokenStream {
    let item = &interface.item;
    let client = client(interface);
    let service = service(interface);
    quote! {
        #item
        #client
        #service
    }
}

/// What both ends compare, as an expression.
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
        #visible struct #client<L> {
            caller: ::atoll_channel::__private::Caller<L>,
        }

        impl<L: ::atoll_channel::Link> #client<L> {
            /// Agrees with the service at the other end of `link` on the interface. It and each call after it take at
            /// most `timeout` (none: for ever, or until the peer dies or closes).
            #visible fn bind(
                link: L,
                timeout: ::core::option::Option<::core::time::Duration>,
            ) -> ::core::result::Result<Self, ::atoll_channel::BindError> {
                let caller = ::atoll_channel::__private::Caller::bind(link, #identity, timeout)?;
                ::core::result::Result::Ok(Self { caller })
            }

            /// Changes how long a call takes at most (none: for ever).
            #visible fn set_timeout(&mut self, timeout: ::core::option::Option<::core::time::Duration>) {
                self.caller.set_timeout(timeout);
            }

            /// Gives the link back, on which another client can be bound.
            #visible fn into_link(self) -> L {
                self.caller.into_link()
            }

            #(#methods)*
        }
    }
}

/// A client's method.
fn call(method: &Method, number: u16) -> TokenStream {
    let Method { name, docs, oneway, arguments, result } = method;
    let names: Vec<_> = arguments.iter().map(|(name, _)| name).collect();
    let types = arguments.iter().map(|(_, of)| of);
    let result = result.as_ref().map_or_else(|| quote!(()), |of| quote!(#of));
    let how = if *oneway { quote!(notify) } else { quote!(call) };
    let text = plain(&name.to_string()).to_owned();
    let values = arguments.iter().map(|(name, of)| value(name, of));
    quote! {
        #(#docs)*
        pub fn #name(
            &mut self,
            #(#names: #types),*
        ) -> ::core::result::Result<#result, ::atoll_channel::CallError> {
            self.caller.#how(#number, #text, &(#(#values,)*))
        }
    }
}

/// An argument as it is encoded: bytes at once, and not one by one as serde does slices.
fn value(name: &Ident, of: &Type) -> TokenStream {
    if of.to_token_stream().to_string().replace(' ', "") == "&[u8]" {
        quote!(::atoll_channel::__private::Bytes(#name))
    } else {
        quote!(&#name)
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
                call: &::atoll_channel::Call,
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

/// What the service does at a call of `method`.
fn arm(interface: &Interface, method: &Method, number: u16) -> TokenStream {
    let of = &interface.item.ident;
    let Method { name, oneway, arguments, .. } = method;
    // Names of our own, as those of the arguments could hide others.
    let names: Vec<_> = (0..arguments.len()).map(|i| format_ident!("argument_{i}")).collect();
    let types = arguments.iter().map(|(_, of)| of);
    let called = quote!(<S as #of>::#name(&mut *self.0, #(#names),*));
    let (bad, good) = if *oneway {
        (
            quote!(HangUp),
            quote!({
                #called;
                ::atoll_channel::Outcome::Nothing
            }),
        )
    } else {
        (quote!(Refuse), quote!(::atoll_channel::__private::reply(&#called, reply)))
    };
    quote! {
        #number => match ::atoll_channel::__private::decode::<(#(#types,)*)>(arguments) {
            ::core::result::Result::Ok((#(#names,)*)) => #good,
            ::core::result::Result::Err(_) => {
                ::atoll_channel::Outcome::#bad(::atoll_channel::Refusal::Arguments)
            }
        },
    }
}
