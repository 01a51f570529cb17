//! Fuzzes both ends of a service: whatever a client sends, the service survives, and the other way round. The input is messages
//! of a kind (2 bytes), a length (1) and content; both ends were greeted, as no fuzzer finds hashes.
#![no_main]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use atoll_channel::{Answer, Link, LinkError, Message, interface, serve};
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, PartialEq, Debug)]
enum Tree {
    Leaf(Option<f64>),
    Node { left: Box<Tree>, right: Vec<Tree> },
}

#[interface(version = 1)]
trait Fuzzed {
    fn text(&mut self, text: &str, owned: String) -> Result<String, char>;
    fn bytes(&mut self, bytes: &[u8], owned: Vec<u8>) -> Vec<u8>;
    fn tree(&mut self, tree: Tree, map: BTreeMap<i32, Vec<()>>) -> (Tree, BTreeMap<i32, Vec<()>>);
    fn later(&mut self, number: u128, answer: Answer<Option<i64>>);
    #[oneway]
    fn note(&mut self, flags: [bool; 3]);
}

struct Service {
    kept: Vec<Answer<Option<i64>>>,
}

impl Fuzzed for Service {
    fn text(&mut self, text: &str, owned: String) -> Result<String, char> {
        owned.chars().next().map_or_else(|| Ok(text.to_owned()), Err)
    }

    fn bytes(&mut self, bytes: &[u8], owned: Vec<u8>) -> Vec<u8> {
        [bytes, &owned].concat()
    }

    fn tree(&mut self, tree: Tree, map: BTreeMap<i32, Vec<()>>) -> (Tree, BTreeMap<i32, Vec<()>>) {
        (tree, map)
    }

    fn later(&mut self, number: u128, answer: Answer<Option<i64>>) {
        match number % 3 {
            0 => answer.give(&i64::try_from(number).ok()),
            1 => self.kept.push(answer),
            _ => {}
        }
    }

    fn note(&mut self, _: [bool; 3]) {
        self.kept.pop();
    }
}

/// A link that delivers the messages of the input, and keeps the messages that are sent.
struct Script {
    says: VecDeque<Message>,
    heard: Vec<Message>,
}

impl Script {
    fn new(says: impl IntoIterator<Item = Message>) -> Script {
        Script { says: says.into_iter().collect(), heard: Vec::new() }
    }
}

impl Link for Script {
    fn send(&mut self, kind: u16, bytes: &[u8], _: Option<Duration>) -> Result<(), LinkError> {
        self.heard.push(Message { kind, bytes: bytes.to_owned() });
        Ok(())
    }

    fn recv(&mut self, message: &mut Message, _: Option<Duration>) -> Result<(), LinkError> {
        *message = self.says.pop_front().ok_or(LinkError::Closed)?;
        Ok(())
    }
}

fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut all = Vec::new();
    while let Some(([low, high, length], rest)) = bytes.split_first_chunk::<3>() {
        let (inside, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        all.push(Message { kind: u16::from_le_bytes([*low, *high]), bytes: inside.to_owned() });
        bytes = rest;
    }
    all
}

fuzz_target!(|bytes: &[u8]| {
    let said = messages(bytes);

    // A client begins with a greeting, which the service answers.
    let mut greeting = Script::new([]);
    let _ = FuzzedClient::bind(&mut greeting, None);
    let mut service = Service { kept: Vec::new() };
    let mut link = Script::new(greeting.heard.into_iter().chain(said.iter().cloned()));
    let _ = serve(&mut link, FuzzedService(&mut service), None);
    let greeted = link.heard.swap_remove(0);

    let count = said.len();
    let answers = Script::new([greeted].into_iter().chain(said));
    let mut client = FuzzedClient::bind(answers, None).expect("it was greeted");
    for _ in 0..count / 4 + 1 {
        let _ = client.text("a", "b".to_owned());
        let _ = client.bytes(b"a", vec![1]);
        let _ = client.tree(Tree::Leaf(None), BTreeMap::new());
        let _ = client.later(7);
    }
});
