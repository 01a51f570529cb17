//! Tests of memory of other nodes: the rigs of the engine that puts and gets by a transport, and mishaps that concern only it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll_channel::Node;
use atoll_channel::bulk::{
    Access, CopyError, Costs, Engine, Manager, Memcpy, Memory, PutGet, Started, Transfer,
};
use atoll_transport::transport::{
    self, Event, Faults, Faulty, Place, Shared, Shm, ShmSettings, Transport, TransportError, Ucx,
    UcxSettings, Waker, mesh,
};

use crate::forked::Child;
use crate::rig::{self, End, Make, Rig};
use crate::suite::pattern;

/// The tests of this file.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_manager_with_memory_of_nodes", a_manager_with_memory_of_nodes),
    ("the_owner_receives_while_an_engine_copies", the_owner_receives_while_an_engine_copies),
    ("engines_in_two_threads_share_a_transport", engines_in_two_threads_share_a_transport),
    ("memory_of_another_transport_is_not_reached", memory_of_another_transport_is_not_reached),
    ("a_handler_that_uses_its_transport_is_refused", a_handler_that_uses_its_transport_is_refused),
    ("a_node_killed_under_transfers", a_node_killed_under_transfers),
    ("a_node_that_does_not_answer", a_node_that_does_not_answer),
];

const SECOND: Duration = Duration::from_secs(1);
const MEGABYTE: u64 = 1 << 20;

/// The transport of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Shm,
    FaultyShm,
    /// UCX over TCP.
    Ucx,
}

impl By {
    fn engine(self) -> &'static str {
        if self == By::Ucx { PutGet::UCX } else { PutGet::SHM }
    }

    /// The transports that can be used here.
    fn all() -> Vec<By> {
        let mut all = vec![By::Shm, By::FaultyShm];
        if ucx() {
            all.push(By::Ucx);
        }
        all
    }
}

/// Whether UCX can be used here; determined in a process of its own, as UCX is not made for forks.
fn ucx() -> bool {
    let available = || {
        if let Err(why) = Ucx::available() {
            atoll_skips::skip_part!("{why}");
            std::process::exit(1);
        }
    };
    Child::run(available).ended_well()
}

/// The data by which a node joins the other.
enum Joining {
    Shm(Place, bool),
    Ucx(Node, Sender<Vec<u8>>, Receiver<Vec<u8>>),
}

impl Joining {
    /// The data by which each of two nodes joins.
    fn both(by: By) -> [Joining; 2] {
        if by == By::Ucx {
            let (to_other, from_one) = channel();
            let (to_one, from_other) = channel();
            return [Joining::Ucx(Node(0), to_other, from_other), Joining::Ucx(Node(1), to_one, from_one)];
        }
        let mut places = mesh(2).unwrap().into_iter();
        [(); 2].map(|()| Joining::Shm(places.next().unwrap(), by == By::FaultyShm))
    }

    fn join(self) -> Box<dyn Transport> {
        match self {
            Joining::Shm(place, faulty) => {
                let shm = Shm::join(place, ShmSettings::default(), 20 * SECOND).unwrap();
                if !faulty {
                    return Box::new(shm);
                }
                let faults = Faults { seed: 4, delayed: 300, full: 100, duplicated: 0, cut: None };
                Box::new(Faulty::new(shm, faults))
            }
            Joining::Ucx(node, to_other, from_other) => {
                let settings = UcxSettings { transports: Some("tcp".into()), ..UcxSettings::default() };
                let ucx = Ucx::join(node, 2, settings, |mine| {
                    to_other.send(mine.clone())?;
                    let theirs = from_other.recv()?;
                    Ok(if node.0 == 0 { vec![mine, theirs] } else { vec![theirs, mine] })
                });
                Box::new(ucx.unwrap())
            }
        }
    }
}

/// A node in a thread, which lets others put and get; it ends some time after this value is dropped.
struct Far {
    ends: Arc<AtomicBool>,
    pauses: Arc<AtomicBool>,
    waker: Waker,
}

impl Drop for Far {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

/// A node with `bytes` bytes of memory, which sends a number of messages; returns the transport to it, and its memory.
fn far(
    by: By,
    bytes: u64,
    messages: u64,
    handler: impl FnMut(Event<'_>) + Send + 'static,
) -> (Shared, End, Far) {
    let [here, there] = Joining::both(by);
    let (tell, told) = channel();
    let (ends, pauses) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (end, pause) = (ends.clone(), pauses.clone());
    std::thread::spawn(move || {
        let mut transport = there.join();
        let memory = Arc::new(transport::Memory::new(bytes as usize).unwrap());
        let key = transport.register(memory.clone()).unwrap();
        tell.send((memory, key, transport.waker())).unwrap();
        let mut sent = 0u64;
        while !end.load(Ordering::SeqCst) {
            if pause.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            transport.progress(&mut |_| ()).unwrap();
            if sent < messages && transport.send(Node(0), 7, &sent.to_le_bytes()).is_ok() {
                sent += 1;
                continue;
            }
            transport.wait(Some(Duration::from_millis(20))).unwrap();
        }
    });
    let shared = Shared::new(here.join(), handler);
    let (memory, key, waker) = told.recv().unwrap();
    let remote = Memory::of_node(&shared, Node(1), &key, Access::READ_WRITE).unwrap();
    let far = Far { ends: ends.clone(), pauses: pauses.clone(), waker: waker.clone() };
    (shared, rig::registered(remote, memory, Far { ends, pauses, waker }), far)
}

/// Two nodes with an engine between them that nobody else uses.
fn pair(by: By, bytes: u64) -> (PutGet, End) {
    let (shared, end, far) = far(by, bytes, 0, |_| ());
    // The end keeps the node alive, too.
    std::mem::forget(far);
    (PutGet::new(by.engine(), &shared).unwrap(), end)
}

/// All rigs, by name.
pub(crate) fn all() -> Vec<(String, Make)> {
    let mut all: Vec<(String, Make)> = Vec::new();
    for by in By::all() {
        let put = move |bytes| {
            let (engine, to) = pair(by, bytes);
            Rig { engine: Box::new(engine), to, from: rig::own(bytes) }
        };
        let get = move |bytes| {
            let (engine, from) = pair(by, bytes);
            Rig { engine: Box::new(engine), to: rig::own(bytes), from }
        };
        all.push((format!("{by:?} puts"), Box::new(put)));
        all.push((format!("{by:?} gets"), Box::new(get)));
    }
    all
}

/// Tests one manager with an engine for each transport.
fn a_manager_with_memory_of_nodes() {
    let mut manager = Manager::with(vec![Box::new(Memcpy::PLAIN)], Costs::default());
    for by in By::all().into_iter().filter(|by| *by != By::FaultyShm) {
        let (engine, far) = pair(by, 9 * MEGABYTE);
        let near = rig::own(9 * MEGABYTE);
        assert!(manager.start(&near.memory, 0, &far.memory, 0, 1).is_err());
        manager.add(Box::new(engine));
        manager.measure(by.engine(), &near.memory, &far.memory).unwrap();
        manager.measure(by.engine(), &far.memory, &near.memory).unwrap();
        let sent = pattern(6, 9 << 20);
        near.put(0, &sent);
        let why = manager.why(&far.memory, &near.memory, 9 * MEGABYTE).unwrap();
        assert_eq!(why.engine, by.engine());
        assert!(why.microseconds.is_some() && why.pieces > 1);
        let copying = manager.start(&far.memory, 0, &near.memory, 0, 9 * MEGABYTE).unwrap();
        assert_eq!(manager.wait(&copying, Some(20 * SECOND)), Some(Ok(())));
        assert!(far.get(0, 9 << 20) == sent);
        near.put(0, &vec![0; 9 << 20]);
        manager.copy(&near.memory, 0, &far.memory, 0, 9 * MEGABYTE).unwrap();
        assert!(near.get(0, 9 << 20) == sent);
    }
}

/// The owner sleeps in the transport for any time, and gets the events that the engine's thread met.
fn the_owner_receives_while_an_engine_copies() {
    const MESSAGES: u64 = 500;
    for by in By::all() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let inbox = received.clone();
        let (shared, there, _far) = far(by, MEGABYTE, MESSAGES, move |event| {
            if let Event::Message { kind: 7, bytes, .. } = event {
                inbox.lock().unwrap().push(u64::from_le_bytes(bytes.try_into().unwrap()));
            }
        });
        let mut engine = PutGet::new(by.engine(), &shared).unwrap();
        let near = rig::own(MEGABYTE);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) || received.lock().unwrap().len() < MESSAGES as usize {
                    shared.progress().unwrap();
                    shared.wait(None).unwrap();
                }
            });
            for round in 0..100u64 {
                let bytes = 1 + round * 997;
                let sent = pattern(round, bytes as usize);
                near.put(0, &sent);
                engine.copy(&Transfer::new(&there.memory, 5, &near.memory, 0, bytes).unwrap()).unwrap();
                assert!(there.get(5, sent.len()) == sent);
                engine.copy(&Transfer::new(&near.memory, 7, &there.memory, 5, bytes).unwrap()).unwrap();
                assert!(near.get(7, sent.len()) == sent);
            }
            done.store(true, Ordering::SeqCst);
            let end = Instant::now() + 20 * SECOND;
            while received.lock().unwrap().len() < MESSAGES as usize {
                assert!(Instant::now() < end);
                std::thread::sleep(Duration::from_millis(1));
            }
            shared.waker().wake();
        });
        assert!(received.lock().unwrap().iter().copied().eq(0..MESSAGES));
    }
}

fn engines_in_two_threads_share_a_transport() {
    for by in By::all() {
        let (shared, there, _far) = far(by, 4 * MEGABYTE, 0, |_| ());
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let mut engine = PutGet::new(by.engine(), &shared).unwrap();
                let memory = there.memory.clone();
                scope.spawn(move || {
                    let near = rig::own(MEGABYTE);
                    for round in 0..50 {
                        let sent = pattern(round << 1 | thread, 100_000);
                        near.put(0, &sent);
                        let at = thread * 2 * MEGABYTE;
                        engine.copy(&Transfer::new(&memory, at, &near.memory, 0, 100_000).unwrap()).unwrap();
                        let back = Transfer::new(&near.memory, 300_000, &memory, at, 100_000).unwrap();
                        engine.copy(&back).unwrap();
                        assert!(near.get(300_000, 100_000) == sent);
                    }
                });
            }
        });
    }
}

fn memory_of_another_transport_is_not_reached() {
    let (mut engine, there) = pair(By::Shm, 4096);
    let (_other, elsewhere) = pair(By::Shm, 4096);
    let near = rig::own(4096);
    assert!(engine.reaches(&near.memory, &there.memory));
    for (to, from) in [
        (&near.memory, &elsewhere.memory),
        (&elsewhere.memory, &near.memory),
        (&elsewhere.memory, &there.memory),
        (&there.memory, &there.memory),
        (&near.memory, &near.memory),
    ] {
        assert!(!engine.reaches(to, from));
        let transfer = Transfer::new(to, 0, from, 2048, 64).unwrap();
        assert!(matches!(engine.start(&transfer, 0), Err(CopyError::Unreachable { .. })));
    }
    // A range beyond the registered memory, and a key that no node gave.
    let beyond = Transfer::new(&near.memory, 0, &there.memory, 4000, 97);
    assert!(matches!(beyond, Err(CopyError::OutOfRange { end: "source", .. })));
    let (shared, _there, _far) = far(By::Shm, 4096, 0, |_| ());
    let forged = Memory::of_node(&shared, Node(1), &[7; 80], Access::READ_WRITE);
    assert!(matches!(forged, Err(TransportError::Key { .. })));
    assert!(matches!(
        Memory::of_node(&shared, Node(5), &[], Access::READ),
        Err(TransportError::NoSuchNode { .. })
    ));
}

fn a_handler_that_uses_its_transport_is_refused() {
    let handle: Arc<Mutex<Option<Shared>>> = Arc::default();
    let (inside, refused) = (handle.clone(), Arc::new(AtomicBool::new(false)));
    let seen = refused.clone();
    let (shared, _there, _far) = far(By::Shm, 4096, 1, move |_| {
        if let Some(shared) = &*inside.lock().unwrap() {
            let answer = shared.send(Node(1), 1, b"from the handler");
            assert!(matches!(answer, Err(TransportError::Failed { .. })));
            assert!(shared.wait(None).is_err());
            assert!(PutGet::new(PutGet::SHM, shared).is_err());
            seen.store(true, Ordering::SeqCst);
        }
    });
    *handle.lock().unwrap() = Some(shared.clone());
    let end = Instant::now() + 20 * SECOND;
    while !refused.load(Ordering::SeqCst) {
        shared.progress().unwrap();
        shared.wait(Some(SECOND)).unwrap();
        assert!(Instant::now() < end);
    }
    shared.send(Node(1), 1, b"from behind it").unwrap();
    *handle.lock().unwrap() = None;
}

/// A process with a node that registered 4 MiB, the transport to it, and its key.
fn process(by: By) -> (Child, Box<dyn Transport>, Vec<u8>) {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    fn give(mut stream: &UnixStream, bytes: &[u8]) {
        stream.write_all(&(bytes.len() as u32).to_le_bytes()).unwrap();
        stream.write_all(bytes).unwrap();
    }
    fn take(mut stream: &UnixStream) -> Vec<u8> {
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }
    let (near, far) = UnixStream::pair().unwrap();
    let mut places = if by == By::Ucx { Vec::new() } else { mesh(2).unwrap() };
    let join = |node: u32, place: Option<Place>, stream: &UnixStream| -> Box<dyn Transport> {
        match place {
            Some(place) => Joining::Shm(place, by == By::FaultyShm).join(),
            None => {
                let settings = UcxSettings { transports: Some("tcp".into()), ..UcxSettings::default() };
                let ucx = Ucx::join(Node(node), 2, settings, |mine| {
                    give(stream, &mine);
                    let theirs = take(stream);
                    Ok(if node == 0 { vec![mine, theirs] } else { vec![theirs, mine] })
                });
                Box::new(ucx.unwrap())
            }
        }
    };
    let place = places.pop();
    let child = Child::run(|| {
        places.clear();
        let mut transport = join(1, place, &far);
        let memory = Arc::new(transport::Memory::new(4 << 20).unwrap());
        give(&far, &transport.register(memory).unwrap());
        loop {
            transport.progress(&mut |_| ()).unwrap();
            transport.wait(None).unwrap();
        }
    });
    let transport = join(0, places.pop(), &near);
    let key = take(&near);
    (child, transport, key)
}

fn a_node_killed_under_transfers() {
    for by in By::all() {
        // A process for each, as the transport of the one before was UCX.
        let one = Child::run(|| {
            let (child, transport, key) = process(by);
            let lost = Arc::new(AtomicBool::new(false));
            let told = lost.clone();
            let shared = Shared::new(transport, move |event| {
                told.fetch_or(matches!(event, Event::Lost { node: Node(1), .. }), Ordering::SeqCst);
            });
            let there = Memory::of_node(&shared, Node(1), &key, Access::READ_WRITE).unwrap();
            let near = rig::own(8 * MEGABYTE);
            let mut manager =
                Manager::with(vec![Box::new(PutGet::new(by.engine(), &shared).unwrap())], Costs::default());
            manager.copy(&there, 0, &near.memory, 0, 4 * MEGABYTE).unwrap();
            let mut under_way = Vec::new();
            let end = Instant::now() + 20 * SECOND;
            let mut errors = 0;
            for round in 0u64.. {
                if round == 20 {
                    child.kill();
                }
                let started = match round % 2 {
                    0 => manager.start(&there, 0, &near.memory, 0, 4 * MEGABYTE),
                    _ => manager.start(&near.memory, 4 * MEGABYTE, &there, 0, 4 * MEGABYTE),
                };
                under_way.push(started.unwrap());
                manager.progress(Duration::from_millis(1));
                // With nothing under way an engine does nothing.
                shared.progress().unwrap();
                under_way.retain(|copying| match copying.outcome() {
                    None => true,
                    Some(Ok(())) => false,
                    Some(Err(why)) => {
                        // UCX may report the operation before it knows about the node.
                        assert!(matches!(why, CopyError::Lost(Node(1)) | CopyError::Transport), "{why}");
                        assert!(round >= 20);
                        errors += 1;
                        false
                    }
                });
                if errors > 10 && lost.load(Ordering::SeqCst) {
                    break;
                }
                assert!(Instant::now() < end, "{errors} {}", under_way.len());
            }
            while manager.progress(SECOND) > 0 {
                assert!(Instant::now() < end);
            }
            assert!(!under_way.iter().any(|copying| copying.outcome().is_none()));
            assert_eq!(manager.copy(&there, 0, &near.memory, 0, 8), Err(CopyError::Lost(Node(1))));
        });
        assert!(one.ended_well(), "{by:?}");
    }
}

/// Over a network the other node must make progress; an engine that is dropped does not wait for it for ever, and nothing is
/// written to memory that does not belong to the transfer.
fn a_node_that_does_not_answer() {
    if !ucx() {
        return;
    }
    let (shared, there, far) = far(By::Ucx, MEGABYTE, 0, |_| ());
    there.put(0, &pattern(1, 1 << 20));
    let mut engine = PutGet::new(PutGet::UCX, &shared).unwrap();
    let near = rig::own(MEGABYTE);
    engine.copy(&Transfer::new(&near.memory, 0, &there.memory, 0, 64).unwrap()).unwrap();
    far.pauses.store(true, Ordering::SeqCst);
    // Until it has seen that.
    std::thread::sleep(Duration::from_millis(100));
    let transfer = Transfer::new(&near.memory, 0, &there.memory, 0, MEGABYTE).unwrap();
    assert_eq!(engine.start(&transfer, 1), Ok(Started::Pending));
    let mut finished = Vec::new();
    engine.progress(&mut finished, Duration::from_millis(50));
    assert_eq!(finished, []);
    drop(engine);
    drop(near);
    let (next, zeros) = (Memory::new(MEGABYTE).unwrap(), vec![0; 1 << 20]);
    far.pauses.store(false, Ordering::SeqCst);
    // The next engine's operations come after it.
    let mut engine = PutGet::new(PutGet::UCX, &shared).unwrap();
    let near = rig::own(MEGABYTE);
    engine.copy(&Transfer::new(&near.memory, 0, &there.memory, 0, MEGABYTE).unwrap()).unwrap();
    assert!(near.get(0, 1 << 20) == pattern(1, 1 << 20));
    let mut got = vec![1; 1 << 20];
    next.read(0, &mut got).unwrap();
    assert!(got == zeros);
}
