//! The folder by which lenders and borrowers find each other.

use std::os::unix::fs::PermissionsExt;

use atoll_lend::{Card, Directory, DirectoryError};

use crate::raw::{KEY, lender};

fn directory() -> (tempfile::TempDir, Directory) {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::at(folder.path().join("lenders")).unwrap();
    (folder, directory)
}

fn card(name: &str, host: &str, at: std::net::SocketAddr) -> Card {
    Card { name: name.into(), host: host.into(), process: 1, addresses: vec![at] }
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
    let one = card("rack1", "b", first.address());
    directory.enter(&one, &KEY).unwrap();
    let other = card("rack1", "c", "127.0.0.1:1".parse().unwrap());
    let refused = directory.enter(&other, &KEY);
    assert!(matches!(refused, Err(DirectoryError::Taken(name, host)) if name == "rack1" && host == "b"));
    assert_eq!(directory.cards().unwrap(), std::slice::from_ref(&one));
    // A lender that was killed leaves its card, and the next one has the name.
    drop(first);
    directory.enter(&other, &KEY).unwrap();
    assert_eq!(directory.cards().unwrap(), std::slice::from_ref(&other));
    // The first one's end removes nothing of the second's.
    directory.remove(&one);
    assert_eq!(directory.cards().unwrap(), std::slice::from_ref(&other));
    directory.remove(&other);
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
