//! Limits of decoding a peer's bytes: how deep values nest, and how much memory they take.
//!
//! Used by `decode.rs`, around postcard's deserializer. Postcard believes no length beyond the bytes that are there, but has
//! two gaps: a type that contains itself nests as deep as there are bytes, and a sequence of values that take no bytes (`()`,
//! or many an `Option`) is as long as it claims.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// The greatest depth to which values nest; each `Option`, sequence, map, tuple, struct and enum counts.
pub(crate) const MOST_DEPTH: u32 = 128;
/// The most bytes of memory that the elements of sequences and maps take for each byte of a message.
pub(crate) const MOST_GROWTH: usize = 64;
/// The most bytes of memory that they take besides, whatever the message's length.
pub(crate) const ALWAYS: usize = 1 << 20;
/// The most elements for which memory is taken before they were decoded.
const MOST_AHEAD: usize = 4096;

/// The depth and memory left to one message.
pub(crate) struct Limits {
    depth: Cell<u32>,
    memory: Cell<usize>,
}

impl Limits {
    /// The limits of a message of `length` bytes.
    pub(crate) fn new(length: usize) -> Limits {
        let memory = length.saturating_mul(MOST_GROWTH).saturating_add(ALWAYS);
        Limits { depth: Cell::new(MOST_DEPTH), memory: Cell::new(memory) }
    }

    /// Runs `inside` one level deeper.
    fn deeper<T, E: Error>(&self, inside: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let Some(left) = self.depth.get().checked_sub(1) else {
            return Err(E::custom("the value nests too deep"));
        };
        self.depth.set(left);
        let value = inside();
        self.depth.set(left + 1);
        value
    }

    /// Takes the memory of one element from the limit.
    #[inline]
    fn element<T, E: Error>(&self) -> Result<(), E> {
        // An element that takes no memory still takes time.
        match self.memory.get().checked_sub(size_of::<T>().max(1)) {
            Some(left) => {
                self.memory.set(left);
                Ok(())
            }
            None => Err(E::custom("the value is far larger than its message")),
        }
    }
}

/// A deserializer, seed, visitor or access of serde's that keeps to the limits.
pub(crate) struct Guarded<'g, I> {
    pub(crate) inner: I,
    pub(crate) limits: &'g Limits,
}

impl<'g, I> Guarded<'g, I> {
    fn new(inner: I, limits: &'g Limits) -> Guarded<'g, I> {
        Guarded { inner, limits }
    }
}

/// Defines the methods for values that contain no others.
macro_rules! flat {
    ($($name:ident)*) => {
        $(
            #[inline]
            fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
                self.inner.$name(visitor)
            }
        )*
    };
}

/// Defines the methods for values that contain others.
macro_rules! nested {
    ($($name:ident($($argument:ident: $of:ty),*))*) => {
        $(
            #[inline]
            fn $name<V: Visitor<'de>>(self, $($argument: $of,)* visitor: V) -> Result<V::Value, D::Error> {
                let Guarded { inner, limits } = self;
                limits.deeper(|| inner.$name($($argument,)* Guarded::new(visitor, limits)))
            }
        )*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Guarded<'_, D> {
    type Error = D::Error;

    flat! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier
    }

    nested! {
        deserialize_any()
        deserialize_ignored_any()
        deserialize_option()
        deserialize_seq()
        deserialize_map()
        deserialize_newtype_struct(name: &'static str)
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Guarded<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inside: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Guarded::new(inside, self.limits))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inside: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Guarded::new(inside, self.limits))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(Guarded::new(elements, self.limits))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Guarded::new(entries, self.limits))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Guarded::new(variant, self.limits))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Guarded<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, inside: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Guarded::new(inside, self.limits))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Guarded<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let element = self.inner.next_element_seed(Guarded::new(seed, self.limits))?;
        if element.is_some() {
            self.limits.element::<S::Value, A::Error>()?;
        }
        Ok(element)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint().map(|count| count.min(MOST_AHEAD))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Guarded<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let key = self.inner.next_key_seed(Guarded::new(seed, self.limits))?;
        if key.is_some() {
            self.limits.element::<S::Value, A::Error>()?;
        }
        Ok(key)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let value = self.inner.next_value_seed(Guarded::new(seed, self.limits))?;
        self.limits.element::<S::Value, A::Error>()?;
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint().map(|count| count.min(MOST_AHEAD))
    }
}

impl<'de, 'g, A: EnumAccess<'de>> EnumAccess<'de> for Guarded<'g, A> {
    type Error = A::Error;
    type Variant = Guarded<'g, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        // The variant's number contains nothing.
        let (which, inside) = self.inner.variant_seed(seed)?;
        Ok((which, Guarded::new(inside, self.limits)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Guarded<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Guarded::new(seed, self.limits))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(len, Guarded::new(visitor, self.limits))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.inner.struct_variant(fields, Guarded::new(visitor, self.limits))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use crate::decode;

    #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
    enum Tree {
        Leaf,
        Node(Box<Tree>),
        Nodes(Vec<Tree>),
        Pair { left: Box<Tree>, right: Option<Box<Tree>> },
    }

    #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
    struct Everything {
        signed: (bool, i8, i16, i32, i64, i128),
        unsigned: (u8, u16, u32, u64, u128),
        rest: (f32, f64, char),
        text: String,
        bytes: Vec<u8>,
        option: Option<Option<u32>>,
        unit: (),
        tree: Tree,
        map: BTreeMap<String, Vec<u16>>,
        array: [u32; 3],
        wrapped: std::num::Wrapping<u8>,
        time: std::time::Duration,
    }

    #[test]
    fn what_is_within_the_limits_is_as_it_was() {
        let left = Box::new(Tree::Nodes(vec![Tree::Leaf, Tree::Node(Box::new(Tree::Leaf))]));
        let value = Everything {
            signed: (true, -1, -2, -3, -4, -5),
            unsigned: (1, 2, 3, 4, 5),
            rest: (0.5, -0.25, 'ß'),
            text: "text".to_owned(),
            bytes: (0..=255).collect(),
            option: Some(None),
            unit: (),
            tree: Tree::Pair { left, right: Some(Box::new(Tree::Leaf)) },
            map: [("a".to_owned(), vec![1, 2]), ("b".to_owned(), vec![])].into(),
            array: [7, 8, 9],
            wrapped: std::num::Wrapping(3),
            time: std::time::Duration::from_millis(1500),
        };
        let mut bytes = postcard::to_extend(&value, Vec::new()).unwrap();
        assert_eq!(decode::<Everything>(&bytes).unwrap(), value);
        // A message that is cut anywhere, or has bytes behind it, is not accepted.
        for cut in 0..bytes.len() {
            assert!(decode::<Everything>(&bytes[..cut]).is_err(), "{cut}");
        }
        bytes.push(0);
        assert!(decode::<Everything>(&bytes).is_err());
    }

    #[test]
    fn a_type_that_contains_itself_does_not_take_the_stack() {
        let mut deep = vec![1; 1 << 20];
        deep.push(0);
        assert!(decode::<Tree>(&deep).is_err());
        assert!(decode::<Tree>(&[2, 1].repeat(1 << 20)).is_err());
        assert!(decode::<Tree>(&[3].repeat(1 << 20)).is_err());
        let shallow = [&[1; 100][..], &[0]].concat();
        assert!(decode::<Tree>(&shallow).is_ok());
    }

    #[test]
    fn what_takes_no_bytes_is_not_endless() {
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert!(decode::<Vec<()>>(&most).is_err());
        assert!(decode::<HashMap<(), ()>>(&most).is_err());
        assert!(decode::<Vec<[(); 9]>>(&most).is_err());
        assert_eq!(decode::<Vec<()>>(&[3]).unwrap().len(), 3);
        // Elements that are large in memory and have one byte each in the message.
        let nothings = vec![0; 100_000];
        let message = [&[0xa0, 0x8d, 0x06][..], &nothings].concat();
        assert!(decode::<Vec<Option<[u64; 16]>>>(&message).is_err());
        assert_eq!(decode::<Vec<Option<u64>>>(&message).unwrap().len(), 100_000);
        // Lengths beyond the bytes that are there.
        assert!(decode::<String>(&most).is_err());
        assert!(decode::<Vec<u8>>(&most).is_err());
        assert!(decode::<&[u8]>(&most).is_err());
        assert!(decode::<Vec<Vec<Vec<u64>>>>(&most.repeat(10)).is_err());
    }
}
