//! The other processes of a test: this program, run again as a node, or as a process that registers a name.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use atoll_channel::capability::{Handle, Refused};
use atoll_channel::host::NodeDirectory;
use atoll_channel::names::{Level, Limits, Name, NameClient, NameService, NamesError, RegisterError, Search};
use atoll_channel::spawn::{Order, ParentError, SpawnClient, SpawnService, parent};
use atoll_channel::{Channel, Node, Settings};

use crate::names::SECONDS;
use crate::{across, hosts};

/// A process in a role; killed when dropped.
pub(crate) struct Role {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Role {
    /// Starts this program with the arguments `words` and with `stdin`, and waits until it reports that it is ready.
    pub(crate) fn start(words: &[&str], stdin: Stdio) -> Role {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(words)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{words:?}");
        Role { child, said }
    }

    /// The number of the role's process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: no pointers; our own child, not waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id().cast_signed(), signal) }, 0);
    }

    /// Stops it, and waits until all its threads stand still: until one of them has seen the signal the others go on.
    pub(crate) fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: status is valid for writes; our own child, not waited for yet.
        let stopped =
            unsafe { libc::waitpid(self.child.id().cast_signed(), &raw mut status, libc::WUNTRACED) };
        assert!(stopped > 0 && libc::WIFSTOPPED(status), "{status}");
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Kills it, and waits until it is dead.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node in a process of its own.
pub(crate) struct NodeProcess {
    pub(crate) role: Role,
    pub(crate) directory: NodeDirectory,
}

impl NodeProcess {
    /// Node `number`; `link` leads to the other node.
    pub(crate) fn start(number: u32, link: Stdio) -> NodeProcess {
        let directory = NodeDirectory::create(&std::env::temp_dir()).unwrap();
        let role = Role::start(&["node", &number.to_string(), directory.path().to_str().unwrap()], link);
        NodeProcess { role, directory }
    }

    /// A connection to its name service.
    pub(crate) fn names(&self) -> NameClient {
        NameClient::connect(self.directory.path()).unwrap()
    }

    /// A connection to its spawning service.
    pub(crate) fn spawning(&self) -> SpawnClient {
        SpawnClient::connect(self.directory.path()).unwrap()
    }

    /// A process that registers `name` at this node, and stays.
    pub(crate) fn holder(&self, level: &str, name: &str) -> Role {
        Role::start(&["hold", self.directory.path().to_str().unwrap(), level, name], Stdio::null())
    }
}

/// Nodes 0 and 1, linked.
pub(crate) fn two_nodes() -> [NodeProcess; 2] {
    let (zero, one) = UnixStream::pair().unwrap();
    // Node 0 is ready when it waits for the other.
    [NodeProcess::start(0, OwnedFd::from(zero).into()), NodeProcess::start(1, OwnedFd::from(one).into())]
}

/// Plays the role in `words`, if there is one; returns whether it did.
pub(crate) fn play(words: &[String]) -> bool {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["node", number, directory] => node(Node(number.parse().unwrap()), Path::new(directory)),
        ["across", number, directory, way, meeting] => {
            across::node(number.parse().unwrap(), Path::new(directory), way, Path::new(meeting));
        }
        ["two hosts?"] => print!("{}", hosts::missing().unwrap_or_default()),
        ["hold", directory, level, name] => {
            let mut names = NameClient::connect(Path::new(directory)).unwrap();
            let level = if *level == "global" { Level::Global } else { Level::Local };
            names.register(level, &name.parse().unwrap(), b"held").unwrap();
            ready();
            stay();
        }
        ["order", directory, node] => {
            let mut spawning = SpawnClient::connect(Path::new(directory)).unwrap();
            let order = Order::program("sleep").argument("100");
            let id = spawning.spawn(Node(node.parse().unwrap()), &order).unwrap();
            println!("ready");
            println!("{}", id.process);
            std::io::stdout().flush().unwrap();
            stay();
        }
        ["worker"] => {
            let given = parent().unwrap();
            assert!(matches!(parent(), Err(ParentError::Taken)));
            let mut names = NameClient::from_environment().unwrap();
            assert_eq!((names.node(), given.service.unwrap().node()), (given.id.node, given.id.node));
            let name = Name::new("worker", given.id.node, given.id.serial as u32).unwrap();
            names.register(Level::Global, &name, &given.capability).unwrap();
            stay();
        }
        ["restless", directory, number] => restless(Path::new(directory), number.parse().unwrap()),
        ["copy", socket] => copy(Path::new(socket)),
        ["family"] => {
            // This process has not taken the descriptor, so its child inherits it.
            let child = Command::new(std::env::current_exe().unwrap()).arg("orphan").status().unwrap();
            let given = parent().unwrap();
            assert!(given.service.is_none());
            std::process::exit(child.code().unwrap() + given.capability.len() as i32);
        }
        ["orphan"] => std::process::exit(if matches!(parent(), Err(ParentError::None)) { 40 } else { 1 }),
        ["delegate"] => {
            let mut service = parent().unwrap().service.unwrap();
            let id = service.spawn(service.node(), &Order::program("sleep").argument("100")).unwrap();
            println!("{}", id.process);
            stay();
        }
        _ => return false,
    }
    true
}

pub(crate) fn ready() {
    println!("ready");
    std::io::stdout().flush().unwrap();
}

pub(crate) fn stay() {
    std::thread::sleep(std::time::Duration::from_secs(100));
}

fn node(node: Node, directory: &Path) {
    let names = NameService::start(node, directory, 100, Limits::default()).unwrap();
    let spawning = SpawnService::start(node, directory, 100).unwrap();
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let linked = is_socket(&stdin);
    let link = UnixStream::from(stdin);
    if node == Node(0) {
        ready();
        if linked {
            names.link_node(Node(1), &link).unwrap();
            spawning.link_to(Node(1), &link).unwrap();
            spawning.admit(&link).unwrap();
        }
    } else {
        if linked {
            names.link_up(&link).unwrap();
            spawning.admit(&link).unwrap();
            spawning.link_to(Node(0), &link).unwrap();
        }
        ready();
    }
    drop(link);
    stay();
}

/// Whether the file is a socket; the standard input of a node alone is none.
fn is_socket(file: &OwnedFd) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::File::from(file.try_clone().unwrap()).metadata().unwrap().file_type().is_socket()
}

/// Memory whose owner copies for holders of a capability.
#[atoll_channel::interface(version = 1)]
pub(crate) trait Copies {
    fn copy_from(&mut self, handle: Handle, offset: u64, length: u32) -> Result<Vec<u8>, Refused>;
}

/// Has the memory of its capability copied to itself, and reports by its exit status.
fn copy(socket: &Path) {
    let given = parent().unwrap();
    let handle: Handle = postcard::from_bytes(&given.capability).unwrap();
    let stream = UnixStream::connect(socket).unwrap();
    let channel = Channel::connect(&stream, Settings::default(), None, SECONDS).unwrap();
    let mut copies = CopiesClient::bind(channel, SECONDS).unwrap();
    assert_eq!(copies.copy_from(handle, 4, 6).unwrap().unwrap(), b"shared");
    let beyond = copies.copy_from(handle, 4000, 200).unwrap();
    assert!(matches!(beyond, Err(Refused::Range { .. })), "{beyond:?}");
    std::process::exit(77);
}

/// Uses both levels in every way, until it is killed.
fn restless(directory: &Path, number: u32) {
    let mut names = NameClient::connect(directory).unwrap();
    let node = names.node();
    ready();
    for round in 0.. {
        let level = if round % 2 == 0 { Level::Local } else { Level::Global };
        let name = Name::new("restless", node, number * 1000 + round % 7).unwrap();
        let (watch, _) = names.watch(level, &"restless*".parse().unwrap()).unwrap();
        match names.register(level, &name, &[1; 2000]) {
            Ok(_) => {}
            // The name is still that of the earlier process with this number, whose death was not seen yet.
            Err(NamesError::Register(RegisterError::Taken { .. })) => {}
            Err(why) => panic!("{why}"),
        }
        names.look_up(Search::Either, &(&name).into()).unwrap();
        let timeout = Some(std::time::Duration::from_millis(u64::from(round % 3)));
        let _ = names.wait_for(Search::Either, &"restless@*.9999".parse().unwrap(), timeout);
        names.look_up_all(level, &"*".parse().unwrap()).unwrap();
        let _ = names.next_change(timeout).unwrap();
        if round % 3 != 0 {
            let _ = names.unregister(level, &name);
        }
        names.unwatch(watch).unwrap();
    }
}
