//! A table behind a service: the owner answers requests that come over a channel, and copies.

use std::time::Duration;

use atoll_channel::capability::{Given, Handle, Owner, Refused, Rights, Sharing, Span};
use atoll_channel::{Channel, Message, Peer, RecvError, Settings};
use serde::{Deserialize, Serialize};

use crate::child::{SECONDS, with_child};
use crate::forked::Child;
use crate::{LENGTH, OWNER, PEER, byte, is_right, owner, whole};

#[derive(Serialize, Deserialize)]
enum Request {
    CopyFrom(Handle, u64, u32),
    CopyTo(Handle, u64, Vec<u8>),
    Derive(Handle, Span, Rights),
    /// Asks the owner to take back all that it gave.
    TakeBack,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
enum Answer {
    Bytes(Vec<u8>),
    Handle(Handle),
    Done,
}

/// Answers requests until the other end closes. The holder is the process at the other end.
fn serve(owner: &mut Owner, root: Handle, channel: &mut Channel) {
    let mut message = Message::default();
    while channel.recv(&mut message, SECONDS).is_ok() {
        let request: Request = postcard::from_bytes(&message.bytes).unwrap();
        let answer = match request {
            Request::CopyFrom(handle, offset, length) => {
                let mut bytes = vec![0; (length as usize).min(1 << 20)];
                owner.copy_from(PEER, handle, offset, &mut bytes).map(|()| Answer::Bytes(bytes))
            }
            Request::CopyTo(handle, offset, bytes) => {
                owner.copy_to(PEER, handle, offset, &bytes).map(|()| Answer::Done)
            }
            Request::Derive(handle, part, rights) => {
                owner.derive(PEER, handle, part, rights).map(Answer::Handle)
            }
            Request::TakeBack => owner.revoke(OWNER, root).map(|_| Answer::Done),
        };
        channel.send(0, &postcard::to_allocvec(&answer).unwrap(), SECONDS).unwrap();
    }
}

fn ask(channel: &mut Channel, request: &Request) -> Result<Answer, Refused> {
    let mut message = Message::default();
    channel.send(0, &postcard::to_allocvec(request).unwrap(), SECONDS).unwrap();
    channel.recv(&mut message, SECONDS).unwrap();
    postcard::from_bytes(&message.bytes).unwrap()
}

pub(crate) fn the_owner_copies_and_refuses() {
    let (mut owner, root) = owner(Sharing::Read);
    let part = Span { offset: 100, length: 200 };
    let handle = owner.grant(OWNER, root, PEER, part, Rights::COPY_FROM).unwrap();
    let (child, mut channel) = with_child(Settings::default(), |mut channel| {
        let mut ask = |request| ask(&mut channel, &request);
        let bytes = ask(Request::CopyFrom(handle, 10, 50));
        assert_eq!(bytes, Ok(Answer::Bytes((110..160).map(byte).collect())));
        let outside = Refused::Range { asked: Span { offset: 190, length: 11 }, length: 200 };
        assert_eq!(ask(Request::CopyFrom(handle, 190, 11)), Err(outside));
        let overflow = Refused::Range { asked: Span { offset: u64::MAX, length: 11 }, length: 200 };
        assert_eq!(ask(Request::CopyFrom(handle, u64::MAX, 11)), Err(overflow));
        let missing = Refused::Rights { missing: Rights::COPY_TO };
        assert_eq!(ask(Request::CopyTo(handle, 0, vec![1])), Err(missing));
        assert_eq!(
            ask(Request::Derive(handle, part, Rights::READ)),
            Err(Refused::Rights { missing: Rights::READ })
        );
        let of_owner = Handle { slot: root.slot, generation: root.generation, ..handle };
        assert_eq!(ask(Request::CopyFrom(of_owner, 0, 1)), Err(Refused::Forged));
        // This holds even if it learns the owner's handle.
        assert_eq!(ask(Request::CopyFrom(root, 0, 1)), Err(Refused::NotHolder));

        let Ok(Answer::Handle(less)) =
            ask(Request::Derive(handle, Span { offset: 50, length: 10 }, Rights::COPY_FROM))
        else {
            panic!("not derived")
        };
        assert_eq!(ask(Request::CopyFrom(less, 0, 1)), Ok(Answer::Bytes(vec![byte(150)])));
        assert_eq!(ask(Request::TakeBack), Ok(Answer::Done));
        assert_eq!(ask(Request::CopyFrom(less, 0, 1)), Err(Refused::Revoked));
        assert_eq!(ask(Request::CopyFrom(handle, 0, 1)), Err(Refused::Revoked));
    });
    serve(&mut owner, root, &mut channel);
    assert!(child.ended_well());
    let mut bytes = vec![0; LENGTH as usize];
    owner.copy_from(OWNER, root, 0, &mut bytes).unwrap();
    assert!(is_right(&bytes));
}

pub(crate) fn a_killed_holder_leaves_nothing() {
    let (mut owner, root) = owner(Sharing::Read);
    let handle = owner.grant(OWNER, root, PEER, whole(), Rights::all()).unwrap();
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let child: Child = Child::run(|| {
        let mut channel = Channel::connect(&there, Settings::default(), None, SECONDS).unwrap();
        for _ in 0..100 {
            ask(&mut channel, &Request::Derive(handle, whole(), Rights::COPY_FROM)).unwrap();
        }
        std::thread::sleep(Duration::from_secs(50));
    });
    let peer = Peer::process(child.pid as u32).unwrap();
    let mut channel = Channel::connect(&here, Settings::default(), None, SECONDS).unwrap();
    let mut message = Message::default();
    for _ in 0..100 {
        channel.recv(&mut message, SECONDS).unwrap();
        let Request::Derive(handle, part, rights) = postcard::from_bytes(&message.bytes).unwrap() else {
            panic!("another request")
        };
        let answer = owner.derive(PEER, handle, part, rights).map(Answer::Handle);
        channel.send(0, &postcard::to_allocvec(&answer).unwrap(), SECONDS).unwrap();
    }
    child.kill();
    assert_eq!(channel.recv(&mut message, SECONDS), Err(RecvError::PeerDied));
    assert!(peer.died());
    let gone = owner.drop_holder(PEER);
    assert_eq!(gone.len(), 101);
    assert!(gone.iter().all(|one| one.holder == PEER && one.given == Given::empty()));
    assert_eq!(owner.table().len(), 1);
}
