//! The tests that every transport must pass, as programs that each node runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_transport::Node;
use atoll_transport::transport::{
    Buffer, KeyError, LostReason, Memory, Piece, Remote, Transport, TransportError,
};

use crate::run::{Run, pause};
use crate::words::{Random, check, message};

/// A program that a node runs.
pub(crate) type Program = fn(Run<'_>);

/// The programs, each with the number of the last nodes that are killed.
pub(crate) const SUITE: &[(&str, Program, u32)] = &[
    ("messages_arrive_whole_once_in_order", messages_arrive_whole_once_in_order, 0),
    ("puts_and_gets_move_what_they_should", puts_and_gets_move_what_they_should, 0),
    ("a_message_behind_a_flush_finds_the_put", a_message_behind_a_flush_finds_the_put, 0),
    ("a_node_that_does_not_look_stops_senders", a_node_that_does_not_look_stops_senders, 0),
    ("what_cannot_be_is_refused", what_cannot_be_is_refused, 0),
    ("a_waker_and_a_timeout_end_a_wait", a_waker_and_a_timeout_end_a_wait, 0),
    ("what_was_sent_before_closing_arrives", what_was_sent_before_closing_arrives, 0),
    ("a_cut_node_is_lost_on_both_sides", a_cut_node_is_lost_on_both_sides, 0),
    ("a_killed_node_is_lost_soon", a_killed_node_is_lost_soon, 1),
];

fn messages_arrive_whole_once_in_order(mut run: Run<'_>) {
    const MESSAGES: u64 = 150;
    let mut bytes = Vec::new();
    for number in 0..MESSAGES {
        for to in run.others() {
            message(number << 8 | u64::from(run.spot.node.0), &mut bytes);
            if number % 30 == 7 {
                // Larger than anything that is sent at once, and as large as allowed.
                bytes = vec![number as u8; run.transport.longest() / if number > 100 { 1 } else { 3 }];
            }
            run.send(to, number as u16, &bytes);
        }
    }
    for from in run.others() {
        for number in 0..MESSAGES {
            let (kind, bytes) = run.receive(from);
            assert_eq!(u64::from(kind), number);
            if number % 30 == 7 {
                assert!(bytes.iter().all(|byte| *byte == number as u8));
                assert_eq!(bytes.len(), run.transport.longest() / if number > 100 { 1 } else { 3 });
            } else {
                assert_eq!(check(&bytes), number << 8 | u64::from(from.0));
            }
        }
    }
    run.send(run.others()[0], 999, b"");
    let to_me = (0..run.spot.nodes).map(Node).filter(|node| *node != run.spot.node);
    let to_me: Vec<_> = to_me.filter(|node| first_other(*node) == run.spot.node).collect();
    for from in to_me {
        assert_eq!(run.receive(from), (999, Vec::new()));
    }
    run.finish();
}

fn first_other(node: Node) -> Node {
    Node(u32::from(node.0 == 0))
}

/// Registers memory and gives its key to all nodes; returns the memory of the others.
fn spread(run: &mut Run<'_>, memory: &Arc<Memory>) -> Vec<Remote> {
    let key = run.transport.register(memory.clone()).unwrap();
    let mut keys: Vec<_> = run.share(&key).into_iter().collect();
    keys.sort();
    keys.into_iter()
        .map(|(node, key)| {
            let remote = run.transport.attach(node, &key).unwrap();
            assert_eq!((remote.owner(), remote.bytes()), (node, memory.len() as u64));
            remote
        })
        .collect()
}

/// The bytes of each of the two pieces that every node's memory has for each other node.
const STRIPE: usize = 100_000;

fn puts_and_gets_move_what_they_should(mut run: Run<'_>) {
    let me = run.spot.node;
    let nodes = run.spot.nodes as usize;
    // One memory that others can map, and one that they cannot.
    let plain = Box::leak(vec![0u8; nodes * STRIPE].into_boxed_slice());
    // SAFETY: it is never freed, and nobody uses the slice any more.
    let plain = unsafe { Memory::existing(plain.as_mut_ptr(), plain.len(), None) };
    for memory in [Memory::new(nodes * STRIPE).unwrap(), plain].map(Arc::new) {
        let remotes = spread(&mut run, &memory);
        let mut random = Random(u64::from(me.0));
        let stripe: Vec<u8> = (0..STRIPE).map(|_| random.next() as u8).collect();
        let source = Arc::new(Memory::new(STRIPE).unwrap());
        source.write(0, &stripe).unwrap();
        let mut tokens = Vec::new();
        for remote in &remotes {
            // The bytes go in pieces of any size, from a vector and from memory in turn.
            let mut from = 0;
            while from < STRIPE {
                let length = (1 + random.next() as usize % 20_000).min(STRIPE - from);
                let buffer = if from % 2 == 0 {
                    Buffer::Owned(stripe[from..from + length].to_vec())
                } else {
                    Buffer::Piece(Piece::new(source.clone(), from, length).unwrap())
                };
                tokens.push((run.put(*remote, (me.0 as usize * STRIPE + from) as u64, buffer), length));
                from += length;
            }
        }
        for remote in &remotes {
            run.flush(remote.owner());
        }
        for (token, length) in tokens {
            assert_eq!(run.ended(token).unwrap().len(), length);
        }
        run.share(b"put");
        for node in run.others() {
            let mut random = Random(u64::from(node.0));
            let expected: Vec<u8> = (0..STRIPE).map(|_| random.next() as u8).collect();
            let mut found = vec![0; STRIPE];
            memory.read(node.0 as usize * STRIPE, &mut found).unwrap();
            assert!(found == expected, "what {node} put to {me}");
        }
        // The bytes are read back, to a vector and to memory.
        let target = Arc::new(Memory::new(STRIPE).unwrap());
        for remote in &remotes {
            let at = (me.0 as usize * STRIPE) as u64;
            let owned = run.get(*remote, at, Buffer::Owned(vec![0; STRIPE]));
            let piece = Buffer::Piece(Piece::new(target.clone(), 10, STRIPE - 10).unwrap());
            let piece = run.get(*remote, at + 10, piece);
            let nothing = run.get(*remote, (nodes * STRIPE) as u64, Buffer::Owned(Vec::new()));
            assert!(run.ended(nothing).unwrap().is_empty());
            assert!(run.ended(owned).unwrap().into_owned().unwrap() == stripe);
            run.ended(piece).unwrap();
            let mut found = vec![0; STRIPE - 10];
            target.read(10, &mut found).unwrap();
            assert!(found == stripe[10..]);
        }
        run.share(b"got");
        for remote in remotes {
            run.transport.detach(remote);
        }
    }
    run.finish();
}

fn a_message_behind_a_flush_finds_the_put(mut run: Run<'_>) {
    let memory = Arc::new(Memory::new(8 * run.spot.nodes as usize).unwrap());
    let remotes = spread(&mut run, &memory);
    let at = 8 * u64::from(run.spot.node.0);
    for round in 1..=20u64 {
        for remote in &remotes {
            // The last of many values is valid after the flush of all.
            for number in [round << 8, round << 8 | 1] {
                run.put(*remote, at, Buffer::Owned(number.to_le_bytes().to_vec()));
                run.flush(remote.owner());
            }
            run.send(remote.owner(), round as u16, b"look");
        }
        for from in run.others() {
            assert_eq!(run.receive(from).0, round as u16);
            let mut found = [0; 8];
            memory.read(8 * from.0 as usize, &mut found).unwrap();
            assert_eq!(u64::from_le_bytes(found), round << 8 | 1);
        }
        run.share(b"seen");
    }
    run.finish();
}

fn a_node_that_does_not_look_stops_senders(mut run: Run<'_>) {
    const MOST: u64 = 2000;
    let last = Node(run.spot.nodes - 1);
    run.share(b"ready");
    run.meet();
    if run.spot.node == last {
        // Until the others have found no room.
        run.spot.meet(pause);
    } else {
        let mut sent = 0u64;
        let bytes = vec![7; 100_000];
        let mut full = Instant::now();
        // The transport is full for some time, not only for the moment that some layer needs.
        while full.elapsed() < Duration::from_millis(300) {
            match run.transport.send(last, sent as u16, &bytes) {
                Ok(()) => {
                    sent += 1;
                    full = Instant::now();
                }
                Err(TransportError::Full(node)) => {
                    assert_eq!(node, last);
                    run.pump();
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(why) => panic!("{why}"),
            }
            assert!(sent < MOST, "there is no limit to what is kept");
        }
        run.meet();
        run.send(last, 9999, &sent.to_le_bytes());
    }
    if run.spot.node == last {
        for from in run.others() {
            let mut received = 0;
            loop {
                let (kind, bytes) = run.receive(from);
                if kind == 9999 {
                    assert_eq!(bytes, u64::to_le_bytes(received));
                    break;
                }
                assert_eq!((kind, bytes.len()), (received as u16, 100_000));
                received += 1;
            }
            assert!(received > 10);
        }
    }
    run.finish();
}

fn what_cannot_be_is_refused(mut run: Run<'_>) {
    let me = run.spot.node;
    let other = run.others()[0];
    let nodes = run.spot.nodes;
    let longest = run.transport.longest();
    for node in [me, Node(nodes), Node(u32::MAX)] {
        let no_such = Err(TransportError::NoSuchNode { node, nodes });
        assert_eq!(run.transport.send(node, 0, b"to whom"), no_such);
        assert_eq!(run.transport.flush(node, 0), no_such);
        assert_eq!(run.transport.attach(node, b"key").map(|_| ()), no_such);
    }
    let too_long = vec![0; longest + 1];
    assert_eq!(
        run.transport.send(other, 0, &too_long),
        Err(TransportError::TooLong { length: longest + 1, longest })
    );

    let memory = Arc::new(Memory::new(1000).unwrap());
    let key = run.transport.register(memory.clone()).unwrap();
    let keys = run.share(&key);
    let theirs = &keys[&other];
    let remote = run.transport.attach(other, theirs).unwrap();
    for (offset, length) in
        [(1000, 1), (0, 1001), (1001, 0), (u64::MAX, 1), (u64::MAX, 0), (u64::MAX - 5, 10)]
    {
        for put in [true, false] {
            let buffer = Buffer::Owned(vec![1; length]);
            let refused = match put {
                true => run.transport.put(remote, offset, buffer, 77),
                false => run.transport.get(remote, offset, buffer, 77),
            };
            let refused = refused.unwrap_err();
            let out = TransportError::OutOfRange { owner: other, offset, length: length as u64, bytes: 1000 };
            assert_eq!((refused.why, refused.buffer.len()), (out, length));
        }
    }
    let why = |run: &mut Run<'_>, key: &[u8]| match run.transport.attach(other, key) {
        Err(TransportError::Key { owner, why }) if owner == other => why,
        result => panic!("{result:?}"),
    };
    for length in 0..theirs.len() {
        assert_ne!(why(&mut run, &theirs[..length]), KeyError::TooLong);
        let mut damaged = theirs.clone();
        damaged[length] ^= 0x40;
        why(&mut run, &damaged);
    }
    let mut longer = theirs.clone();
    longer.push(0);
    assert_eq!(why(&mut run, &longer), KeyError::TooLong);
    assert_eq!(why(&mut run, &vec![0xff; 1 << 20]), KeyError::TooLong);
    assert_eq!(why(&mut run, &key), KeyError::OtherNode(me));
    if nodes > 2 {
        let third = run.others()[1];
        let third_key = keys[&third].clone();
        assert_eq!(why(&mut run, &third_key), KeyError::OtherNode(third));
    }

    // Earlier errors do not block valid operations.
    let token = run.put(remote, 999, Buffer::Owned(vec![5]));
    run.flush(other);
    run.ended(token);
    run.share(b"one byte");
    let mut byte = [0];
    memory.read(999, &mut byte).unwrap();
    // Whether this is the first other node of some node.
    if (0..nodes).map(Node).any(|node| node != me && first_other(node) == me) {
        assert_eq!(byte, [5]);
    }
    run.transport.detach(remote);
    let refused = run.transport.put(remote, 0, Buffer::Owned(vec![1]), 78).unwrap_err();
    assert_eq!(refused.why, TransportError::NotAttached(other));
    assert!(run.done.is_empty());
    run.finish();
}

fn a_waker_and_a_timeout_end_a_wait(mut run: Run<'_>) {
    run.share(b"all here");
    let waker = run.transport.waker();
    for _ in 0..3 {
        let waker = waker.clone();
        let begin = Instant::now();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            waker.wake();
        });
        // A wait may return without a reason, but not always.
        let mut waits = 0;
        while begin.elapsed() < Duration::from_millis(20) {
            run.transport.wait(Some(Duration::from_secs(10))).unwrap();
            run.pump();
            waits += 1;
            assert!(waits < 10_000, "it does not sleep");
        }
        thread.join().unwrap();
        run.transport.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(9), "it was not woken");
    }
    // A wake before the wait counts as well.
    waker.wake();
    let begin = Instant::now();
    run.transport.wait(Some(Duration::from_secs(10))).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(9));
    for _ in 0..3 {
        run.transport.wait(Some(Duration::from_millis(5))).unwrap();
    }
    run.finish();
}

fn what_was_sent_before_closing_arrives(mut run: Run<'_>) {
    let last = Node(run.spot.nodes - 1);
    run.share(b"all here");
    if run.spot.node == last {
        for number in 0..50u16 {
            for to in run.others() {
                run.send(to, number, &vec![number as u8; usize::from(number) * 1000]);
            }
        }
        let spot = run.spot;
        drop(run);
        return spot.meet(pause);
    } else {
        for number in 0..50u16 {
            let (kind, bytes) = run.receive(last);
            assert_eq!((kind, bytes), (number, vec![number as u8; usize::from(number) * 1000]));
        }
        let why = run.until("the end of the last node", |run| run.lost.get(&last).cloned());
        assert_eq!(why, LostReason::Closed);
        assert_eq!(run.transport.send(last, 0, b"too late"), Err(TransportError::Lost(last)));
        assert_eq!(run.transport.flush(last, 0), Err(TransportError::Lost(last)));
        // The other nodes are still there.
        for to in run.others().into_iter().filter(|to| *to != last) {
            run.send(to, 1, b"still here");
        }
        for from in run.others().into_iter().filter(|from| *from != last) {
            assert_eq!(run.receive(from).0, 1);
        }
    }
    run.meet();
}

fn a_cut_node_is_lost_on_both_sides(mut run: Run<'_>) {
    let last = Node(run.spot.nodes - 1);
    run.share(b"all here");
    run.meet();
    if run.spot.node == Node(0) {
        run.transport.cut(last);
        let why = run.until("the loss", |run| run.lost.get(&last).cloned());
        assert_eq!(why, LostReason::Cut);
        assert_eq!(run.transport.send(last, 0, b""), Err(TransportError::Lost(last)));
        // Cutting twice is the same as once, and cutting an unknown node does nothing.
        run.transport.cut(last);
        run.transport.cut(Node(1000));
        run.transport.cut(run.spot.node);
    } else if run.spot.node == last {
        run.until("the loss", |run| run.lost.get(&Node(0)).cloned());
    }
    for (to, lost) in [(0, last.0), (last.0, 0)] {
        if run.spot.node == Node(to) {
            assert_eq!(run.lost.len(), 1, "{:?}", run.lost);
            assert!(run.lost.contains_key(&Node(lost)));
        }
    }
    for to in run.others().into_iter().filter(|to| !run.lost.contains_key(to)).collect::<Vec<_>>() {
        run.send(to, 1, b"still here");
        assert_eq!(run.receive(to).0, 1);
    }
    run.meet();
}

fn a_killed_node_is_lost_soon(mut run: Run<'_>) {
    let last = Node(run.spot.nodes - 1);
    let memory = Arc::new(Memory::new(1 << 20).unwrap());
    let remotes = spread(&mut run, &memory);
    run.meet();
    if run.spot.node == last {
        // The last node dies in the middle of messages to and from all.
        for number in 0..40u64 {
            for to in run.others() {
                let _ = run.transport.send(to, 1, &number.to_le_bytes());
                let _ = run.transport.send(to, 2, &vec![number as u8; 50_000]);
            }
            run.pump();
        }
        run.spot.die();
    }
    let remote = *remotes.iter().find(|remote| remote.owner() == last).unwrap();
    let mut tokens = Vec::new();
    let begin = Instant::now();
    run.until("the death", |run| {
        if run.lost.contains_key(&last) {
            return Some(());
        }
        let token = run.token();
        if run.transport.get(remote, 0, Buffer::Owned(vec![0; 4096]), token).is_ok() {
            tokens.push(token);
        }
        let token = run.token();
        if run.transport.put(remote, 0, Buffer::Owned(vec![0; 4096]), token).is_ok() {
            tokens.push(token);
        }
        let _ = run.transport.send(last, 1, &[0; 20_000]);
        let token = run.token();
        if run.transport.flush(last, token).is_ok() {
            tokens.push(token);
        }
        None
    });
    assert!(begin.elapsed() < Duration::from_secs(10));
    let why = &run.lost[&last];
    assert!(matches!(why, LostReason::Died(_)), "{why:?}");
    for token in tokens {
        // The operation has ended, well or not, before the loss was reported.
        assert!(run.done.remove(&token).is_some(), "{token} has not ended");
    }
    assert_eq!(run.transport.send(last, 1, b"to the dead"), Err(TransportError::Lost(last)));
    let refused = run.transport.get(remote, 0, Buffer::Owned(vec![0]), 1).unwrap_err();
    assert_eq!(refused.why, TransportError::Lost(last));
    for to in run.others().into_iter().filter(|to| *to != last) {
        run.send(to, 3, b"alive");
    }
    run.inbox.retain(|(from, _, _)| *from != last);
    for from in run.others().into_iter().filter(|from| *from != last) {
        assert_eq!(run.receive(from).0, 3);
    }
    run.meet();
}
