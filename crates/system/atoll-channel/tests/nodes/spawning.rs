//! Tests of spawning over processes and nodes: what starts, what cannot, and that nothing is left behind.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use atoll_channel::capability::{
    Handle, Holder, Limits, Memory, Owner, Refused, Rights, Shared, Sharing, Span,
};
use atoll_channel::host::NodeDirectory;
use atoll_channel::names::Search;
use atoll_channel::spawn::{
    Capability, ClientError, Exit, Order, Output, ProcessError, ProcessId, SpawnClient, SpawnError, State,
};
use atoll_channel::{Channel, Node, Settings, serve};

use crate::names::{SECONDS, pattern};
use crate::role::{Copies, CopiesService, Role, two_nodes};

const KILLED: Exit = Exit::Signal(9);

/// This program, to be started in a role.
fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn worker() -> Order {
    Order::worker(this_program(), Duration::from_secs(20)).argument("worker")
}

fn sleep() -> Order {
    Order::program("sleep").argument("100")
}

fn shell(script: &str) -> Order {
    Order::program("/bin/sh").arguments(["-c", script])
}

/// Whether the process exists and is not a zombie.
fn lives(process: u32) -> bool {
    let about = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    about.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

pub(crate) fn wait_until_dead(process: u32) {
    let begin = Instant::now();
    while lives(process) {
        assert!(begin.elapsed() < SECONDS.unwrap(), "process {process} lives still");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads the process number that some process writes to a file.
fn number_in(file: &std::path::Path) -> u32 {
    let begin = Instant::now();
    loop {
        match std::fs::read_to_string(file).unwrap_or_default().strip_suffix('\n') {
            Some(number) => return number.parse().unwrap(),
            None => assert!(begin.elapsed() < SECONDS.unwrap()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn scratch() -> NodeDirectory {
    NodeDirectory::create(&std::env::temp_dir()).unwrap()
}

pub(crate) fn a_program_runs_on_either_node() {
    let nodes = two_nodes();
    let files = scratch();
    let mut spawning = nodes[0].spawning();
    for node in [Node(0), Node(1)] {
        let script = r#"echo "$1 $WORD"; echo error >&2; pwd >> paths; exit 3"#;
        let order = shell(script)
            .arguments(["sh", "argument"])
            .variable("WORD", "variable")
            .directory(files.path())
            .output(Output::file("out"))
            .error(Output::file(files.path().join("err")));
        let id = spawning.spawn(node, &order).unwrap();
        assert_eq!(id.node, node);
        assert_eq!(spawning.wait(id, SECONDS).unwrap(), Exit::Status(3));
        // The process is still known.
        assert_eq!(spawning.state(id).unwrap(), State::Ended { exit: Exit::Status(3), ready: true });
        let read = |name: &str| std::fs::read_to_string(files.path().join(name)).unwrap();
        assert_eq!((read("out").as_str(), read("err").as_str()), ("argument variable\n", "error\n"));
        // Both outputs to one file, which is emptied first.
        let both = order.output(Output::file("out")).error(Output::file("out"));
        let id = spawning.spawn(node, &both).unwrap();
        spawning.wait(id, SECONDS).unwrap();
        assert_eq!(read("out"), "argument variable\nerror\n");

        let id = spawning.spawn(node, &sleep()).unwrap();
        assert_eq!(spawning.state(id).unwrap(), State::Running);
        let why = spawning.wait(id, Some(Duration::from_millis(20))).unwrap_err();
        assert!(matches!(why, ClientError::TimedOut { .. }), "{why}");
        spawning.signal(id, 15).unwrap();
        assert_eq!(spawning.wait(id, SECONDS).unwrap(), Exit::Signal(15));
        let why = spawning.kill(id).unwrap_err();
        assert!(matches!(why, ClientError::Process(ProcessError::Ended { .. })), "{why}");
    }
}

pub(crate) fn what_cannot_start_is_one_clear_error() {
    let nodes = two_nodes();
    let files = scratch();
    let text = files.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    let script = files.path().join("script");
    std::fs::write(&script, "#!/nowhere/sh\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut spawning = nodes[0].spawning();
    for node in [Node(0), Node(1)] {
        let mut why = |order: &Order| match spawning.spawn(node, order).unwrap_err() {
            ClientError::Spawn(why) => why,
            other => panic!("{other}"),
        };
        assert!(matches!(why(&Order::program("/nowhere/x")), SpawnError::NotFound { .. }));
        let missing = why(&Order::program("no-such-program-at-all"));
        assert_eq!(
            missing.to_string(),
            format!(
                "no-such-program-at-all cannot be started on {node}: it does not exist there, or the \
                 interpreter that it names does not"
            )
        );
        assert!(matches!(why(&Order::program(&script)), SpawnError::NotFound { .. }));
        assert!(matches!(why(&Order::program(&text)), SpawnError::NotExecutable { .. }));
        let nowhere = why(&sleep().directory("/nowhere"));
        assert!(nowhere.to_string().contains("/nowhere: No such file"), "{nowhere}");
        let nowhere = why(&sleep().output(Output::file("/nowhere/out")));
        assert!(nowhere.to_string().contains("/nowhere/out: No such file"), "{nowhere}");
        let long = why(&sleep().argument("x".repeat(1 << 19)));
        assert!(matches!(long, SpawnError::LongOrder { .. }), "{long}");
        let long = why(&sleep().capability(Capability::Now(vec![0; 5000])));
        assert!(matches!(long, SpawnError::LongCapability { bytes: 5000 }), "{long}");

        // A program that starts and dies before it is ready, or is never ready.
        let within = Duration::from_secs(20);
        let died = why(&Order::worker("/bin/sh", within).arguments(["-c", "exit 7"]));
        assert_eq!(
            died.to_string(),
            format!("/bin/sh was started on {node} and ended before it was ready: exit status 7")
        );
        let late = why(&Order::worker("sleep", Duration::from_millis(100)).argument("100"));
        assert!(matches!(late, SpawnError::DiedAtOnce { exit: Exit::Late, .. }), "{late}");
    }
    let why = spawning.spawn(Node(7), &sleep()).unwrap_err();
    assert_eq!(
        why.to_string(),
        "the spawning service of node 7 cannot be reached: this node was not linked to it"
    );
}

pub(crate) fn a_worker_on_node_1_gets_a_capability() {
    let nodes = two_nodes();
    let mut names = nodes[0].names();
    let mut spawning = nodes[0].spawning();
    let mut ids: Vec<ProcessId> = Vec::new();
    for node in [Node(1), Node(1), Node(0)] {
        let capability = vec![0xca + ids.len() as u8; 2048];
        let order = worker().capability(Capability::Now(capability.clone()));
        let id = spawning.spawn(node, &order).unwrap();
        assert_eq!(spawning.state(id).unwrap(), State::Running);
        let what = pattern(&format!("worker@{}.{}", id.node.0, id.serial));
        let entry = names.wait_for(Search::Global, &what, SECONDS).unwrap();
        assert_eq!((entry.value, entry.owner.process), (capability, id.process));
        ids.push(id);
    }
    assert_eq!((ids[0].serial, ids[1].serial), (1, 2));
    for id in ids {
        spawning.kill(id).unwrap();
        assert_eq!(spawning.wait(id, SECONDS).unwrap(), KILLED);
    }
}

pub(crate) fn a_capability_can_come_later() {
    let nodes = two_nodes();
    let mut names = nodes[0].names();
    let mut spawning = nodes[0].spawning();
    let id = spawning.spawn(Node(1), &worker().capability(Capability::Later)).unwrap();
    assert_eq!(spawning.state(id).unwrap(), State::Starting);
    // The capability contains the worker's id.
    let capability = format!("for {id}");
    spawning.hand_over(id, capability.as_bytes()).unwrap();
    assert_eq!(spawning.state(id).unwrap(), State::Running);
    let entry = names.wait_for(Search::Global, &pattern("worker@1"), SECONDS).unwrap();
    assert_eq!(entry.value, capability.as_bytes());
    let why = spawning.hand_over(id, b"again").unwrap_err();
    assert!(matches!(why, ClientError::Process(ProcessError::HandedOver(_))), "{why}");
    // A worker that died while it waited.
    let id = spawning.spawn(Node(1), &worker().capability(Capability::Later)).unwrap();
    spawning.kill(id).unwrap();
    assert_eq!(spawning.wait(id, SECONDS).unwrap(), KILLED);
    let why = spawning.hand_over(id, b"late").unwrap_err();
    assert!(matches!(why, ClientError::Process(ProcessError::Ended { .. })), "{why}");
}

/// The owner of some memory, and the holder at the other end of the channel.
struct Memories<'a> {
    owner: &'a Owner,
    by: Holder,
}

impl Copies for Memories<'_> {
    fn copy_from(&mut self, handle: Handle, offset: u64, length: u32) -> Result<Vec<u8>, Refused> {
        let mut bytes = vec![0; length.min(4096) as usize];
        self.owner.copy_from(self.by, handle, offset, &mut bytes)?;
        Ok(bytes)
    }
}

pub(crate) fn a_worker_reaches_memory_that_it_was_given() {
    let nodes = two_nodes();
    let files = scratch();
    let socket = files.path().join("memory");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut spawning = nodes[0].spawning();
    // This process has memory on node 0.
    let this = Holder { node: Node(0), process: 0 };
    let mut owner = Owner::new(this, Limits::default()).unwrap();
    let memory = Shared::new(4096, Sharing::Read).unwrap();
    let root = owner.add(Memory::Shared(memory)).unwrap();
    owner.copy_to(this, root, 4, b"shared").unwrap();

    // Not started as a worker, since this test could not serve it while it waits for it to be ready.
    let order = Order::program(this_program()).argument("copy").argument(&socket);
    let id = spawning.spawn(Node(1), &order.capability(Capability::Later)).unwrap();
    let all = Span { offset: 0, length: 4096 };
    let handle = owner.grant(this, root, id.into(), all, Rights::COPY_FROM).unwrap();
    spawning.hand_over(id, &postcard::to_stdvec(&handle).unwrap()).unwrap();

    let (stream, _) = listener.accept().unwrap();
    let channel = Channel::connect(&stream, Settings::default(), None, SECONDS).unwrap();
    // Another process that has the handle cannot use it.
    let why = owner.copy_from(this, handle, 0, &mut [0; 4]).unwrap_err();
    assert!(matches!(why, Refused::NotHolder), "{why}");
    // The client is done when it exits: the channel is closed, or its process is dead.
    let _ = serve(channel, CopiesService(&mut Memories { owner: &owner, by: id.into() }), SECONDS);
    assert_eq!(spawning.wait(id, SECONDS).unwrap(), Exit::Status(77));
}

pub(crate) fn a_grandchild_is_not_taken_for_a_child() {
    let nodes = two_nodes();
    let mut spawning = nodes[0].spawning();
    let order = Order::program(this_program()).argument("family").capability(Capability::Now(vec![1, 2]));
    let id = spawning.spawn(Node(1), &order).unwrap();
    assert_eq!(spawning.wait(id, SECONDS).unwrap(), Exit::Status(42));
}

pub(crate) fn a_killed_process_takes_its_group_along() {
    let nodes = two_nodes();
    let files = scratch();
    let mut spawning = nodes[0].spawning();
    // Ended once by a kill, and once by itself.
    for (script, exit) in [("sleep 100 & echo $!; wait", KILLED), ("sleep 100 & echo $!", Exit::Status(0))] {
        let id = spawning.spawn(Node(1), &shell(script).directory(files.path()).output(Output::file("out")));
        let id = id.unwrap();
        let grandchild = number_in(&files.path().join("out"));
        if exit == KILLED {
            assert!(lives(grandchild));
            spawning.kill(id).unwrap();
        }
        assert_eq!(spawning.wait(id, SECONDS).unwrap(), exit);
        wait_until_dead(grandchild);
    }
}

pub(crate) fn what_somebody_ordered_ends_with_him() {
    let nodes = two_nodes();
    let zero = nodes[0].directory.path().to_str().unwrap();
    for node in ["0", "1"] {
        let mut orderer = Role::start(&["order", zero, node], Stdio::null());
        let process: u32 = orderer.line().parse().unwrap();
        assert!(lives(process));
        orderer.kill();
        wait_until_dead(process);
    }
    // The connection is dropped.
    let mut spawning = nodes[0].spawning();
    let ids = [Node(0), Node(1)].map(|node| spawning.spawn(node, &sleep()).unwrap());
    drop(spawning);
    ids.iter().for_each(|id| wait_until_dead(id.process));
    // Processes that a worker ordered end with the worker.
    let files = scratch();
    let mut spawning = nodes[0].spawning();
    let order = Order::worker(this_program(), Duration::from_secs(20)).argument("delegate");
    let id = spawning.spawn(Node(1), &order.directory(files.path()).output(Output::file("out"))).unwrap();
    let process = number_in(&files.path().join("out"));
    assert!(lives(process));
    spawning.kill(id).unwrap();
    wait_until_dead(process);
}

pub(crate) fn no_child_survives_its_service() {
    let mut nodes = two_nodes();
    let mut spawning = nodes[0].spawning();
    let ids = [Node(0), Node(1), Node(1)].map(|node| spawning.spawn(node, &sleep()).unwrap());
    let mut waiting = nodes[0].spawning();
    let waiter = std::thread::spawn(move || waiting.wait(ids[1], SECONDS).unwrap_err());
    std::thread::sleep(Duration::from_millis(50));
    nodes[1].role.kill();
    ids[1..].iter().for_each(|id| wait_until_dead(id.process));
    // A client that waited for one is told, and nothing starts there any more.
    let why = waiter.join().unwrap();
    assert!(matches!(why, ClientError::Process(ProcessError::Unreachable(_))), "{why}");
    let why = spawning.spawn(Node(1), &sleep()).unwrap_err();
    assert!(matches!(why, ClientError::Spawn(SpawnError::Unreachable(_))), "{why}");
    // This node's processes go on.
    assert_eq!(spawning.state(ids[0]).unwrap(), State::Running);
    nodes[0].role.kill();
    wait_until_dead(ids[0].process);
    assert!(spawning.wait(ids[0], SECONDS).is_err());
}

pub(crate) fn only_what_was_started_can_be_killed() {
    let nodes = two_nodes();
    let mut bystander = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let mut spawning = nodes[0].spawning();
    let id = spawning.spawn(Node(1), &sleep()).unwrap();
    let forged = [
        ProcessId { node: Node(0), ..id },
        ProcessId { serial: 99, ..id },
        ProcessId { process: bystander.id(), ..id },
        ProcessId { node: Node(0), serial: 1, process: bystander.id() },
    ];
    for forged in forged {
        let why = spawning.kill(forged).unwrap_err();
        assert!(matches!(why, ClientError::Process(ProcessError::Unknown(_))), "{why}");
        assert!(spawning.wait(forged, SECONDS).is_err());
    }
    for signal in [0, -1, 1000, i32::MIN] {
        let why = spawning.signal(id, signal).unwrap_err();
        assert!(matches!(why, ClientError::Process(ProcessError::NoSignal(_))), "{why}");
    }
    assert!(lives(bystander.id()) && lives(id.process));
    // Any process of the user may ask for it and kill it, as it could without the service.
    nodes[1].spawning().kill(id).unwrap();
    assert_eq!(spawning.wait(id, SECONDS).unwrap(), KILLED);
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

pub(crate) fn both_nodes_order_from_each_other_at_once() {
    let nodes = two_nodes();
    let order = |mut spawning: SpawnClient, node| {
        std::thread::spawn(move || {
            for _ in 0..20 {
                let id = spawning.spawn(node, &Order::program("true")).unwrap();
                assert_eq!(spawning.wait(id, SECONDS).unwrap(), Exit::Status(0));
            }
        })
    };
    let threads = [
        order(nodes[0].spawning(), Node(1)),
        order(nodes[1].spawning(), Node(0)),
        order(nodes[1].spawning(), Node(1)),
    ];
    for thread in threads {
        thread.join().unwrap();
    }
}
