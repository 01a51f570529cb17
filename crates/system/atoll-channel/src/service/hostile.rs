//! Tests with peers that send anything: a service and a client survive, and handle the valid parts correctly.
//!
//! The tests also write out the bytes of calls and answers, which must be the same on every instruction set.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use crate::service::dispatch::{ClientId, Dispatch};
use crate::service::hello::{BindError, Hello};
use crate::service::later::Outbox;
use crate::service::session::{Session, Step};
use crate::service::{CallError, Refusal, ServeError, interface, serve};
use atoll_transport::Message;
use atoll_transport::{Link, LinkError};

#[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq, Clone)]
enum Shape {
    Nothing,
    Box { width: u32, height: i64 },
    Shapes(Vec<Shape>),
}

/// An interface with everything that a message can hold.
#[interface(version = 3)]
trait Everything {
    fn nothing(&mut self);
    fn sum(&mut self, numbers: Vec<u64>, minus: i32) -> Result<i64, String>;
    fn echo(&mut self, text: &str, bytes: &[u8], shape: Shape) -> (String, Vec<u8>, Shape);
    fn float(&mut self, value: f64, yes: bool, letter: char) -> Option<f64>;
    #[oneway]
    fn note(&mut self, text: String);
    fn reverse(&mut self, bytes: Vec<u8>) -> Vec<u8>;
}

#[derive(Default)]
struct Service {
    called: usize,
}

impl Everything for Service {
    fn nothing(&mut self) {
        self.called += 1;
    }

    fn sum(&mut self, numbers: Vec<u64>, minus: i32) -> Result<i64, String> {
        self.called += 1;
        let sum = numbers.iter().fold(0u64, |sum, number| sum.wrapping_add(*number));
        i64::try_from(sum).map(|sum| sum - i64::from(minus)).map_err(|e| e.to_string())
    }

    fn echo(&mut self, text: &str, bytes: &[u8], shape: Shape) -> (String, Vec<u8>, Shape) {
        self.called += 1;
        (text.to_owned(), bytes.to_owned(), shape)
    }

    fn float(&mut self, value: f64, yes: bool, letter: char) -> Option<f64> {
        self.called += 1;
        (yes && letter == 'x').then_some(value)
    }

    fn note(&mut self, _: String) {
        self.called += 1;
    }

    fn reverse(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        self.called += 1;
        bytes.reverse();
        bytes
    }
}

/// The hash of the methods above, which changes when they do.
const HASH: u64 = 0x0abc_afbb_ea93_4817;

/// A link to nobody: delivers the messages of a script, and records the messages that are sent.
struct Script {
    says: VecDeque<Message>,
    heard: Vec<Message>,
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

fn message(kind: u16, bytes: &[u8]) -> Message {
    Message { kind, bytes: bytes.to_owned() }
}

fn hello(last: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Hello::new(&EverythingService(&mut Service::default()).interface(), last).write(&mut bytes);
    bytes
}

/// A session whose client has been greeted.
fn bound(service: &mut Service) -> Session {
    let mut session = Session::new(ClientId::new(), Outbox::default());
    let agreed = session.handle(&message(0, &hello(0)), &mut EverythingService(service));
    assert_eq!(agreed, Ok(Step::Answer));
    session
}

/// A client bound to a service that sends `messages`.
fn client(messages: impl IntoIterator<Item = Message>) -> EverythingClient<Script> {
    let says = std::iter::once(message(0x8000, &hello(0))).chain(messages).collect();
    EverythingClient::bind(Script { says, heard: Vec::new() }, None).unwrap()
}

/// A call of each method and its answer, as they are sent.
fn calls() -> Vec<(Message, Option<Message>)> {
    let mut client = client([]);
    let shape = || Shape::Shapes(vec![Shape::Nothing, Shape::Box { width: 300, height: -2 }]);
    // Nobody answers this call.
    let _ = client.nothing();
    let _ = client.sum(vec![1, 127, 128, u64::from(u32::MAX)], -1);
    let _ = client.echo("hé", &[0, 255, 7], shape());
    let _ = client.float(1.5, true, 'x');
    let _ = client.note("bye".to_owned());
    let _ = client.reverse(vec![1, 200]);
    let said = client.into_link().heard.split_off(1);
    let mut service = Service::default();
    let mut session = bound(&mut service);
    said.into_iter()
        .map(|call| {
            let step = session.handle(&call, &mut EverythingService(&mut service)).unwrap();
            let answer = (step == Step::Answer).then(|| session.answer.clone());
            (call, answer)
        })
        .collect()
}

#[test]
fn calls_and_answers_have_these_bytes() {
    // The method, its call, and its answer.
    type Bytes = (u16, &'static [u8], Option<&'static [u8]>);
    let expected: [Bytes; 6] = [
        (1, &[1, 0, 0, 0], Some(&[1, 0, 0, 0, 0])),
        (
            2,
            &[2, 0, 0, 0, 4, 1, 127, 0x80, 0x01, 0xff, 0xff, 0xff, 0xff, 0x0f, 1],
            // 2^32 + 256, doubled because the encoding allows negative numbers.
            Some(&[2, 0, 0, 0, 0, 0, 0x80, 0x84, 0x80, 0x80, 0x20]),
        ),
        (
            3,
            &[3, 0, 0, 0, 3, b'h', 0xc3, 0xa9, 3, 0, 255, 7, 2, 2, 0, 1, 0xac, 0x02, 3],
            Some(&[3, 0, 0, 0, 0, 3, b'h', 0xc3, 0xa9, 3, 0, 255, 7, 2, 2, 0, 1, 0xac, 0x02, 3]),
        ),
        (
            4,
            &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 1, 1, b'x'],
            Some(&[4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f]),
        ),
        (5, &[5, 0, 0, 0, 3, b'b', b'y', b'e'], None),
        (6, &[6, 0, 0, 0, 2, 1, 200], Some(&[6, 0, 0, 0, 0, 2, 200, 1])),
    ];
    for ((call, answer), (kind, bytes, answered)) in calls().into_iter().zip(expected) {
        assert_eq!((call.kind, call.bytes.as_slice()), (kind, bytes));
        let answer = answer.map(|answer| (answer.kind, answer.bytes));
        assert_eq!(answer, answered.map(|bytes| (kind | 0x8000, bytes.to_owned())), "method {kind}");
    }
}

#[test]
fn a_hello_has_these_bytes() {
    let expected = [&b"ATOLLSVC\x01\0\0\0\x03\0\0\0"[..], &HASH.to_le_bytes(), &[7, 0, 0, 0], b"Everything"];
    assert_eq!(hello(7), expected.concat());
}

#[test]
fn what_is_no_call_of_the_interface_is_refused_and_ends_nothing() {
    let refused = |number: u8, kind: u16, why: Refusal| message(kind, &[number, 0, 0, 0, why as u8]);
    let says = [
        message(0, &hello(0)),
        message(7, &[1, 0, 0, 0]),
        message(0x7fff, &[2, 0, 0, 0]),
        // In turn: no arguments; too many; a length beyond them.
        message(2, &[3, 0, 0, 0]),
        message(1, &[4, 0, 0, 0, 0]),
        message(2, &[5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]),
        message(1, &[6, 0, 0, 0]),
        // Again, and with an older number: not executed twice.
        message(1, &[6, 0, 0, 0]),
        message(1, &[2, 0, 0, 0]),
        // Greeted again, as by a client that takes the link over.
        message(0, &hello(0)),
    ];
    let mut script = Script { says: says.into(), heard: Vec::new() };
    let mut service = Service::default();
    assert_eq!(serve(&mut script, EverythingService(&mut service), None), Ok(()));
    let expected = [
        message(0x8000, &hello(0)),
        refused(1, 0x8007, Refusal::UnknownMethod),
        refused(2, 0xffff, Refusal::UnknownMethod),
        refused(3, 0x8002, Refusal::Arguments),
        refused(4, 0x8001, Refusal::Arguments),
        refused(5, 0x8002, Refusal::Arguments),
        message(0x8001, &[6, 0, 0, 0, 0]),
        message(0x8000, &hello(6)),
    ];
    assert_eq!(script.heard, expected);
    assert_eq!(service.called, 1);
}

#[test]
fn who_breaks_the_rules_is_dropped() {
    let ends = |says: &[Message]| {
        let mut script = Script { says: says.to_vec().into(), heard: Vec::new() };
        serve(&mut script, EverythingService(&mut Service::default()), None).unwrap_err()
    };
    let greeting = message(0, &hello(0));
    let no_service = |why: ServeError| matches!(why, ServeError::Bind(BindError::NotAService(_)));
    assert!(no_service(ends(&[message(1, &[1, 0, 0, 0])])));
    assert!(no_service(ends(&[message(0, b"GET / HTTP/1.1")])));
    assert!(no_service(ends(&[message(0, b"")])));
    assert!(no_service(ends(&[message(0, &hello(0)[..20])])));
    assert_eq!(ends(&[greeting.clone(), message(0x8001, &[1, 0, 0, 0, 0])]), ServeError::NoCall);
    assert_eq!(ends(&[greeting.clone(), message(1, &[1, 0, 0])]), ServeError::NoCall);
    let oneway = ServeError::Oneway { method: 5, why: Refusal::Arguments };
    assert_eq!(ends(&[greeting, message(5, &[1, 0, 0, 0, 9])]), oneway);
}

#[test]
fn a_client_takes_no_answer_for_another() {
    let answer = |number: u8, rest: &[u8]| message(0x8004, &[&[number, 0, 0, 0], rest].concat());
    let half = [&[0, 1][..], &0.5f64.to_le_bytes()].concat();
    let one = [&[0, 1][..], &1.0f64.to_le_bytes()].concat();
    let mut client = client([
        // In turn: late, twice, of another method, of the future; then this call's.
        answer(0, &half),
        message(0x8001, &[1, 0, 0, 0, 0]),
        message(4, &[1, 0, 0, 0, 0]),
        message(0x8000, &hello(9)),
        answer(2, &half),
        answer(1, &one),
        answer(1, &half),
        answer(1, &half),
        answer(2, &half),
    ]);
    assert_eq!(client.float(0.0, true, 'x'), Ok(Some(1.0)));
    assert_eq!(client.float(0.0, true, 'x'), Ok(Some(0.5)));
    let closed = CallError::Link { method: "float", why: LinkError::Closed };
    assert_eq!(client.float(0.0, true, 'x'), Err(closed));
}

#[test]
fn a_client_tells_an_answer_that_is_none() {
    for bytes in
        [&[][..], &[1, 0, 0], &[1, 0, 0, 0], &[1, 0, 0, 0, 77], &[1, 0, 0, 0, 1, 0], &[1, 0, 0, 0, 0, 9]]
    {
        let mut client = client([message(0x8004, bytes)]);
        assert_eq!(client.float(0.0, true, 'x'), Err(CallError::Answer { method: "float" }), "{bytes:?}");
    }
    for why in [1, 2, 3, 4, 5, 6] {
        let refusal = Refusal::numbered(why).unwrap();
        let mut client = client([message(0x8001, &[1, 0, 0, 0, why])]);
        assert_eq!(client.nothing(), Err(CallError::Refused { method: "nothing", why: refusal }));
    }
}

/// Any message; most are near a call or a greeting.
fn any_message() -> impl Strategy<Value = Message> {
    let calls: Vec<Message> = calls()
        .into_iter()
        .flat_map(|(call, answer)| [Some(call), answer])
        .flatten()
        .chain([message(0, &hello(0)), message(0x8000, &hello(0))])
        .collect();
    let bent = (
        proptest::sample::select(calls),
        proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        proptest::option::of(any::<proptest::sample::Index>()),
        proptest::collection::vec(any::<u8>(), 0..6),
    )
        .prop_map(|(mut message, bytes, cut, more)| {
            for (at, byte) in bytes {
                let length = message.bytes.len();
                message.bytes[at.index(length)] = byte;
            }
            if let Some(cut) = cut {
                message.bytes.truncate(cut.index(message.bytes.len()));
            }
            message.bytes.extend(more);
            message
        });
    let any = (
        prop_oneof![0..9u16, 0x8000..0x8009u16, any::<u16>()],
        proptest::collection::vec(any::<u8>(), 0..80),
    )
        .prop_map(|(kind, bytes)| Message { kind, bytes });
    prop_oneof![bent, any]
}

proptest! {
    #[test]
    fn a_service_survives_any_messages(messages in proptest::collection::vec(any_message(), 0..20)) {
        let mut service = Service::default();
        let mut session = bound(&mut service);
        for message in messages {
            let called = service.called;
            match session.handle(&message, &mut EverythingService(&mut service)) {
                // The answer to a call carries its number and its kind.
                Ok(Step::Answer) if message.kind != 0 => {
                    prop_assert_eq!(session.answer.kind, message.kind | 0x8000);
                    prop_assert_eq!(&session.answer.bytes[..4], &message.bytes[..4]);
                    let done = session.answer.bytes[4] == 0;
                    prop_assert_eq!(service.called, called + usize::from(done));
                }
                Ok(_) => {}
                Err(_) => prop_assert_eq!(service.called, called),
            }
        }
    }

    #[test]
    fn a_client_survives_any_answers(messages in proptest::collection::vec(any_message(), 0..20)) {
        let mut one = client(messages.clone());
        // Each call has an answer, or the messages end.
        for _ in 0..=messages.len() {
            let shape = Shape::Box { width: 1, height: 1 };
            if let Err(CallError::Link { why, .. }) = one.echo("text", b"bytes", shape) {
                prop_assert_eq!(why, LinkError::Closed);
                return Ok(());
            }
        }
        prop_assert!(false, "more answers than messages");
    }

    #[test]
    fn binding_survives_any_answers(messages in proptest::collection::vec(any_message(), 0..4)) {
        let _ = EverythingClient::bind(Script { says: messages.into(), heard: Vec::new() }, None);
    }

    #[test]
    fn any_bytes_are_a_hello_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60), known: bool) {
        let bytes = if known { [&b"ATOLLSVC\x01\0\0\0"[..], &bytes].concat() } else { bytes };
        if let Ok(read) = Hello::read(&bytes) {
            let mut again = Vec::new();
            read.write(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
