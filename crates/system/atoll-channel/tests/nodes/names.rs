//! Tests of names over processes and nodes: found, waited for, watched, and lost with their owners.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use atoll_channel::Node;
use atoll_channel::names::{
    Change, Entry, Level, Name, NameClient, NamesError, Pattern, RegisterError, Search, UnregisterError,
};

use crate::role::{NodeProcess, Role, two_nodes};

pub(crate) const SECONDS: Option<Duration> = Some(Duration::from_secs(20));

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn pattern(text: &str) -> Pattern {
    text.parse().unwrap()
}

/// Waits until nothing matches any more.
fn wait_until_gone(names: &mut NameClient, search: Search, what: &Pattern) {
    let begin = Instant::now();
    while names.look_up(search, what).unwrap().is_some() {
        assert!(begin.elapsed() < SECONDS.unwrap(), "{what} is there still");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn a_name_is_found_across_nodes() {
    let nodes = two_nodes();
    let [mut zero, mut one] = [nodes[0].names(), nodes[1].names()];
    assert_eq!((zero.node(), one.node()), (Node(0), Node(1)));
    zero.register(Level::Global, &name("dma@0.0"), b"zero").unwrap();
    one.register(Level::Global, &name("dma@1.0"), b"one, first").unwrap();
    one.register(Level::Global, &name("dma@1.1"), b"one, second").unwrap();
    for names in [&mut zero, &mut one] {
        let mut value =
            |text: &str| names.look_up(Search::Global, &pattern(text)).unwrap().map(|entry| entry.value);
        // The questions of section 6.8.2: one instance, any at a node, any at all.
        assert_eq!(value("dma@1.1").unwrap(), b"one, second");
        assert_eq!(value("dma@1").unwrap(), b"one, first");
        assert_eq!(value("dma").unwrap(), b"zero");
        assert_eq!(value("d*@*.1").unwrap(), b"one, second");
        assert_eq!(value("dma@2"), None);
        let (all, _) = names.look_up_all(Level::Global, &pattern("*@1.*")).unwrap();
        let owners: Vec<Entry> = all.into_iter().filter(|entry| entry.owner.node == Node(1)).collect();
        assert_eq!(owners.len(), 2);
        assert!(owners.iter().all(|entry| entry.owner.process == std::process::id()));
    }
    one.unregister(Level::Global, &name("dma@1.0")).unwrap();
    assert_eq!(zero.look_up(Search::Global, &pattern("dma@1")).unwrap().unwrap().name, name("dma@1.1"));
}

pub(crate) fn levels_are_apart() {
    let nodes = two_nodes();
    let [mut zero, mut one] = [nodes[0].names(), nodes[1].names()];
    one.register(Level::Local, &name("own@1.0"), b"local").unwrap();
    let own = pattern("own");
    assert!(zero.look_up(Search::Either, &own).unwrap().is_none());
    assert!(one.look_up(Search::Global, &own).unwrap().is_none());
    assert_eq!(one.look_up(Search::Local, &own).unwrap().unwrap().value, b"local");
    // The same name can be on both levels; the local entry is found first.
    one.register(Level::Global, &name("own@1.0"), b"global").unwrap();
    assert_eq!(one.look_up(Search::Either, &own).unwrap().unwrap().value, b"local");
    assert_eq!(zero.look_up(Search::Either, &own).unwrap().unwrap().value, b"global");
    one.unregister(Level::Local, &name("own@1.0")).unwrap();
    assert_eq!(one.look_up(Search::Either, &own).unwrap().unwrap().value, b"global");
    // The same holds at node 0, which keeps the global names.
    zero.register(Level::Local, &name("own@0.0"), b"").unwrap();
    assert!(one.look_up(Search::Either, &pattern("own@0")).unwrap().is_none());
    assert!(zero.look_up(Search::Global, &pattern("own@0")).unwrap().is_none());
}

pub(crate) fn a_name_registered_twice_says_by_whom() {
    let nodes = two_nodes();
    let _holders = [nodes[1].holder("local", "it@1.0"), nodes[1].holder("global", "it@1.0")];
    let mut one = nodes[1].names();
    for (level, holder) in [Level::Local, Level::Global].into_iter().zip(&_holders) {
        match one.register(level, &name("it@1.0"), b"mine") {
            Err(NamesError::Register(RegisterError::Taken { by, .. })) => {
                assert_eq!((by.process, by.node), (holder.process(), Node(1)));
            }
            other => panic!("{other:?}"),
        }
        match one.unregister(level, &name("it@1.0")) {
            Err(NamesError::Unregister(UnregisterError::NotYours { by, .. })) => {
                assert_eq!(by.process, holder.process());
            }
            other => panic!("{other:?}"),
        }
        let foreign = one.register(level, &name("it@0.0"), b"");
        assert!(matches!(foreign, Err(NamesError::Register(RegisterError::OtherNode { .. }))), "{foreign:?}");
        let long = one.register(level, &name("long@1.0"), &[0; 100_000]);
        assert!(matches!(long, Err(NamesError::Register(RegisterError::LongValue { .. }))), "{long:?}");
    }
}

pub(crate) fn a_look_up_that_nobody_answers_times_out() {
    let nodes = two_nodes();
    let mut one = nodes[1].names();
    // More waiting look-ups than allowed at once: each is cancelled.
    for round in 0..300 {
        for search in [Search::Local, Search::Global, Search::Either] {
            let timeout = Duration::from_millis(if round == 0 { 50 } else { 0 });
            let begin = Instant::now();
            let why = one.wait_for(search, &pattern("nobody"), Some(timeout)).unwrap_err();
            assert!(begin.elapsed() >= timeout);
            assert!(matches!(why, NamesError::TimedOut { .. }), "{why}");
        }
    }
}

pub(crate) fn a_look_up_waits_across_nodes() {
    let nodes = two_nodes();
    for search in [Search::Global, Search::Either] {
        for (waiting, registering) in [(1, 0), (0, 1), (1, 1), (0, 0)] {
            let mut names = nodes[waiting].names();
            let what = pattern(&format!("event@{registering}"));
            let (begun, has_begun) = std::sync::mpsc::channel();
            let waiter = std::thread::spawn(move || {
                begun.send(()).unwrap();
                names.wait_for(search, &what, SECONDS)
            });
            has_begun.recv().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let mut names = nodes[registering].names();
            let event = name(&format!("event@{registering}.7"));
            names.register(Level::Global, &event, b"now").unwrap();
            let found = waiter.join().unwrap().unwrap();
            assert_eq!((found.name, found.value.as_slice()), (event.clone(), &b"now"[..]));
            names.unregister(Level::Global, &event).unwrap();
        }
    }
}

/// More clients than node 0 can name in one message.
pub(crate) fn an_event_rouses_two_hundred_waiters() {
    let nodes = two_nodes();
    let waiters: Vec<_> = (0..200)
        .map(|_| {
            let mut names = nodes[1].names();
            std::thread::spawn(move || names.wait_for(Search::Global, &pattern("all-up"), SECONDS).unwrap())
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let mut zero = nodes[0].names();
    zero.register(Level::Global, &name("all-up@0.0"), b"go").unwrap();
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap().value, b"go");
    }
}

pub(crate) fn entries_of_a_killed_owner_disappear() {
    let nodes = two_nodes();
    let mut one = nodes[1].names();
    let mut zero = nodes[0].names();
    for (level, search) in [("local", Search::Local), ("global", Search::Global)] {
        let mut holder = nodes[1].holder(level, "mortal@1.0");
        let what = pattern("mortal");
        assert_eq!(one.look_up(search, &what).unwrap().unwrap().owner.process, holder.process());
        let begin = Instant::now();
        holder.kill();
        wait_until_gone(&mut one, search, &what);
        println!("     {level}: gone {:.2} s after its owner was killed", begin.elapsed().as_secs_f64());
        assert!(zero.look_up(Search::Either, &what).unwrap().is_none());
        // The name of a dropped connection is gone as well, and free again.
        let mut names = nodes[1].names();
        let level = if search == Search::Local { Level::Local } else { Level::Global };
        names.register(level, &name("mortal@1.0"), b"").unwrap();
        drop(names);
        wait_until_gone(&mut one, search, &what);
    }
}

pub(crate) fn a_node_0_that_hangs_holds_up_no_local_names() {
    let nodes = two_nodes();
    let mut one = nodes[1].names();
    one.register(Level::Local, &name("here@1.0"), b"").unwrap();
    let mut other = nodes[1].names();
    nodes[0].role.stop();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asking = std::thread::spawn({
        let done = done.clone();
        move || {
            let found = other.look_up(Search::Global, &pattern("there"));
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            found
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..100 {
        assert!(one.look_up(Search::Local, &pattern("here")).unwrap().is_some());
    }
    // A process that connects meanwhile is served, too.
    assert!(nodes[1].names().look_up(Search::Either, &pattern("here")).unwrap().is_some());
    assert!(!done.load(std::sync::atomic::Ordering::SeqCst));
    nodes[0].role.signal(libc::SIGCONT);
    assert_eq!(asking.join().unwrap().unwrap(), None);
}

pub(crate) fn clients_killed_at_random_leave_nothing() {
    let nodes = two_nodes();
    let start = |number: usize| {
        let directory = nodes[number % 2].directory.path().to_str().unwrap();
        Role::start(&["restless", directory, &number.to_string()], Stdio::null())
    };
    let mut clients: Vec<Role> = (0..4).map(start).collect();
    for round in 0..40u64 {
        std::thread::sleep(Duration::from_micros(round * 7919 % 20_000));
        let number = round as usize % clients.len();
        clients[number].kill();
        clients[number] = start(number);
    }
    drop(clients);
    for node in &nodes {
        let mut names = node.names();
        for search in [Search::Local, Search::Global] {
            wait_until_gone(&mut names, search, &pattern("*"));
        }
    }
}

pub(crate) fn entries_of_a_killed_node_disappear() {
    let mut nodes = two_nodes();
    let mut zero = nodes[0].names();
    let mut one = nodes[1].names();
    zero.register(Level::Global, &name("stays@0.0"), b"").unwrap();
    one.register(Level::Global, &name("goes@1.0"), b"").unwrap();
    let (watch, _) = zero.watch(Level::Global, &pattern("*@1.*")).unwrap();
    nodes[1].role.kill();
    wait_until_gone(&mut zero, Search::Global, &pattern("goes"));
    match zero.next_change(SECONDS).unwrap().unwrap() {
        (of, Change::Removed { name: gone, .. }) => assert_eq!((of, gone), (watch, name("goes@1.0"))),
        other => panic!("{other:?}"),
    }
    assert!(zero.look_up(Search::Global, &pattern("stays")).unwrap().is_some());
    let why = one.look_up(Search::Local, &pattern("goes")).unwrap_err();
    assert!(matches!(why, NamesError::Service(_)), "{why}");
}

pub(crate) fn without_node_0_local_names_go_on() {
    let mut nodes = two_nodes();
    let mut one = nodes[1].names();
    let mut other = nodes[1].names();
    one.register(Level::Local, &name("here@1.0"), b"").unwrap();
    one.register(Level::Global, &name("there@1.0"), b"").unwrap();
    // A process waits while it dies.
    let waiter =
        std::thread::spawn(move || other.wait_for(Search::Either, &pattern("never"), SECONDS).unwrap_err());
    std::thread::sleep(Duration::from_millis(50));
    nodes[0].role.kill();
    let why = waiter.join().unwrap();
    assert!(matches!(why, NamesError::GlobalLost(_)), "{why}");
    let why = one.look_up(Search::Global, &pattern("there")).unwrap_err();
    assert!(why.to_string().starts_with("the global names, kept at node 0, cannot be reached: "), "{why}");
    let why = one.register(Level::Global, &name("new@1.0"), b"").unwrap_err();
    assert!(matches!(why, NamesError::GlobalLost(_)), "{why}");
    assert!(one.look_up(Search::Local, &pattern("here")).unwrap().is_some());
    one.register(Level::Local, &name("new@1.0"), b"").unwrap();
    assert!(one.look_up(Search::Either, &pattern("new")).unwrap().is_some());

    // A node that was never linked.
    let alone = NodeProcess::start(3, Stdio::null());
    let why = alone.names().look_up(Search::Global, &pattern("x")).unwrap_err();
    assert!(why.to_string().ends_with("this node was not linked to node 0"), "{why}");
}

pub(crate) fn a_watch_misses_nothing_or_says_so() {
    let nodes = two_nodes();
    for (level, watching) in [(Level::Local, 1), (Level::Global, 1), (Level::Global, 0)] {
        let mut watcher = nodes[watching].names();
        let mut names = nodes[1].names();
        names.register(level, &name("w@1.0"), b"before").unwrap();
        let (watch, begin) = watcher.watch(level, &pattern("w@1")).unwrap();
        let (entries, up_to) = watcher.look_up_all(level, &pattern("w@1")).unwrap();
        assert_eq!((entries.len(), begin), (1, up_to));
        assert_eq!(watcher.next_change(Some(Duration::ZERO)).unwrap(), None);

        names.register(level, &name("other@1.1"), b"").unwrap();
        names.register(level, &name("w@1.1"), b"second").unwrap();
        names.unregister(level, &name("w@1.0")).unwrap();
        let mut last = begin;
        let mut next = |watcher: &mut NameClient| {
            let (of, change) = watcher.next_change(SECONDS).unwrap().unwrap();
            assert!(of == watch && change.serial() > last);
            last = change.serial();
            change
        };
        match next(&mut watcher) {
            Change::Added(entry) => {
                assert_eq!((entry.name, entry.value), (name("w@1.1"), b"second".to_vec()));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(next(&mut watcher), Change::Removed { name: gone, .. } if gone == name("w@1.0")));
        // The names' owner goes with the remaining names.
        drop(names);
        assert!(matches!(next(&mut watcher), Change::Removed { name: gone, .. } if gone == name("w@1.1")));

        // Changes are not fetched for longer than the service keeps them.
        let mut names = nodes[1].names();
        for _ in 0..400 {
            names.register(level, &name("w@1.2"), b"").unwrap();
            names.unregister(level, &name("w@1.2")).unwrap();
        }
        assert!(matches!(next(&mut watcher), Change::Missed { .. }));
        watcher.unwatch(watch).unwrap();
        names.register(level, &name("w@1.3"), b"").unwrap();
        assert_eq!(watcher.next_change(Some(Duration::from_millis(20))).unwrap(), None);
    }
}

pub(crate) fn pages_of_entries_are_whole() {
    let nodes = two_nodes();
    let mut one = nodes[1].names();
    for instance in 0..200 {
        let name = Name::new("big", Node(1), instance).unwrap();
        one.register(Level::Global, &name, &[instance as u8; 2048]).unwrap();
    }
    let (all, _) = nodes[0].names().look_up_all(Level::Global, &pattern("big")).unwrap();
    assert_eq!(all.len(), 200);
    for (instance, entry) in all.iter().enumerate() {
        assert_eq!((entry.name.instance(), &entry.value), (instance as u32, &vec![instance as u8; 2048]));
    }
}

pub(crate) fn strangers_do_no_harm() {
    let nodes = two_nodes();
    // One visitor that sends nothing, and one that sends invalid bytes.
    let socket = nodes[1].directory.path().join("names");
    let _silent = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let mut loud = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let _ = loud.write_all(&[0xa5; 4096]);
    let mut one = nodes[1].names();
    one.register(Level::Global, &name("calm@1.0"), b"").unwrap();
    assert!(nodes[0].names().look_up(Search::Global, &pattern("calm")).unwrap().is_some());
}
