//! How lenders and borrowers find each other: the folder, and the names that lenders keep.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use atoll_lend::{Card, Directory, DirectoryError, Lender, Terms};

use crate::raw::{KEY, lender};

fn directory() -> (tempfile::TempDir, Directory) {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::at(folder.path().join("lenders")).unwrap();
    (folder, directory)
}

/// The card of a lender that does not live.
fn card(name: &str, host: &str, at: SocketAddr) -> Card {
    Card { name: name.into(), host: host.into(), process: 1, identity: 1, addresses: vec![at] }
}

/// The card of a lender that lives.
fn of(lender: &Lender, name: &str, host: &str) -> Card {
    Card { name: name.into(), ..lender.card(host.into(), vec![lender.address()]) }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_secret_is_made_once_and_refused_when_others_could_read_it() {
    let (folder, directory) = directory();
    let key = directory.secret().unwrap().key();
    assert_eq!(directory.secret().unwrap().key(), key);
    let file = folder.path().join("lenders/.secret");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let text = directory.secret().unwrap_err().to_string();
    assert!(text.contains("others may read") && text.contains("remove it"), "{text}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&file, "short").unwrap();
    assert!(directory.secret().is_err());
}

#[test]
fn a_name_is_taken_while_its_lender_lives() {
    let (_folder, directory) = directory();
    let first = lender(64 << 20);
    let one = of(&first, "rack1", "b");
    let entered = directory.enter(&one, &KEY).unwrap();
    let other = card("rack1", "c", "127.0.0.1:1".parse().unwrap());
    let refused = directory.enter(&other, &KEY);
    assert!(matches!(refused, Err(DirectoryError::Taken(name, host)) if name == "rack1" && host == "b"));
    assert_eq!(directory.cards().unwrap(), std::slice::from_ref(&one));
    // A lender that was killed leaves its card, and the next one has the name.
    drop(first);
    let second = directory.enter(&other, &KEY).unwrap();
    assert_eq!(directory.cards().unwrap(), std::slice::from_ref(&other));
    // The first one's end removes nothing of the second's.
    drop(entered);
    assert_eq!(directory.cards().unwrap(), std::slice::from_ref(&other));
    drop(second);
    assert_eq!(directory.cards().unwrap(), []);
}

#[test]
fn names_that_are_no_names_of_files_are_refused() {
    let (_folder, directory) = directory();
    for name in ["", ".x", "a/b", "..", "a b", "ä", &"x".repeat(41)] {
        let refused = directory.enter(&card(name, "b", "127.0.0.1:1".parse().unwrap()), &KEY);
        assert!(matches!(refused, Err(DirectoryError::Name(_))), "{name}");
    }
}

/// A lender at a fixed port was killed, which leaves its card, and was started anew: it took itself for another lender of its name.
#[test]
fn a_lender_took_itself_for_another() {
    let (_folder, directory) = directory();
    let lender = lender(64 << 20);
    let killed = card("rack1", "b", lender.address());
    std::mem::forget(directory.enter(&killed, &KEY).unwrap());
    let again = of(&lender, "rack1", "b");
    let _entered = directory.enter(&again, &KEY).unwrap();
    assert_eq!(directory.cards().unwrap(), [again]);
}

/// Each host has the loopback address, and with fixed ports the lender of this host answered for those of others.
#[test]
fn a_lender_of_this_host_answered_for_another() {
    let here = lender(64 << 20);
    let there = card("rack2", "c", here.address());
    let text = there.open(&KEY).err().map(|error| error.to_string());
    assert_eq!(text.as_deref(), Some("another lender answers there"));
    let (mut control, _) = of(&here, "rack1", "b").open(&KEY).unwrap();
    assert_eq!(control.report().unwrap().loans, []);
}

/// A lender with this name, whose key is the directory's, at a port that stays the same when it is started anew.
fn keeper(key: [u8; 32], at: SocketAddr) -> Lender {
    // The system may need a moment until the port is free again.
    let began = Instant::now();
    loop {
        match Lender::start(Terms::new("keeper", 64 << 20, key), at) {
            Ok(lender) => {
                lender.keep_name(&lender.card("a".into(), vec![lender.address()]));
                return lender;
            }
            Err(error) => assert!(began.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn names(directory: &Directory) -> Vec<String> {
    directory.cards().map_or(Vec::new(), |cards| cards.into_iter().map(|card| card.name).collect())
}

#[test]
fn lenders_are_found_by_the_names_that_a_lender_keeps() {
    let (folder, directory) = directory();
    let key = directory.secret().unwrap().key();
    let first = keeper(key, "127.0.0.1:0".parse().unwrap());
    let at = first.address();
    let directory = directory.kept_by(&format!("localhost:{}", at.port())).unwrap();
    assert_eq!(names(&directory), ["keeper"], "it knows itself");

    let lender = Lender::start(Terms::new("rack1", 64 << 20, key), "127.0.0.1:0".parse().unwrap()).unwrap();
    let card = of(&lender, "rack1", "b");
    let entered = directory.enter(&card, &key).unwrap();
    assert!(entered.untold().is_empty());
    assert_eq!(directory.cards().unwrap()[1], card);
    let other = Lender::start(Terms::new("rack1", 64 << 20, key), "127.0.0.1:0".parse().unwrap()).unwrap();
    let refused = directory.enter(&of(&other, "rack1", "c"), &key);
    assert!(matches!(refused, Err(DirectoryError::Taken(name, host)) if name == "rack1" && host == "b"));

    // A keeper that comes back is told again.
    drop(first);
    let text = directory.cards().unwrap_err().to_string();
    assert!(text.contains("cannot be asked") && text.contains(&at.port().to_string()), "{text}");
    let again = keeper(key, at);
    wait_until("the keeper is not told again", || names(&directory) == ["keeper", "rack1"]);
    // A name goes with its lender, and nothing was written to the folder.
    drop(entered);
    wait_until("the name stays", || names(&directory) == ["keeper"]);
    assert_eq!(Directory::at(folder.path().join("lenders")).unwrap().cards().unwrap(), []);
    drop(again);

    // A lender whose keeper is away lends, and says so.
    let entered = directory.enter(&card, &key).unwrap();
    assert!(entered.untold()[0].contains("cannot be asked"), "{:?}", entered.untold());
}

#[test]
fn what_keeps_names_is_checked() {
    let (_folder, first) = directory();
    let key = first.secret().unwrap().key();
    let keeper = keeper(key, "127.0.0.1:0".parse().unwrap());
    let list = keeper.address().to_string();
    // One that answers suffices.
    let both = first.clone().kept_by(&format!("127.0.0.1:1, {list}")).unwrap();
    assert_eq!(names(&both), ["keeper"]);
    for list in ["", "b", "b:", "b:0", ":4700", "b:4700,", "b:70000", "lenders/here:1"] {
        assert!(matches!(first.clone().kept_by(list), Err(DirectoryError::Variable(_))), "{list}");
    }
    // Another user's, or another host's, secret.
    let (_folder, other) = directory();
    let text = other.kept_by(&list).unwrap().cards().unwrap_err().to_string();
    assert!(text.contains("copy the secret of its host"), "{text}");
}
