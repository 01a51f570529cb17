//! Tests of jobs on this machine, without a remote shell or with a stand-in for one.

use std::process::Stdio;

use crate::jobs::{Folder, all_end, done, finish, launch, pids, sorted, this};

const THREE: &str = "localhost,.,localhost";

pub(crate) fn three_nodes_exchange_in_many_rounds() {
    let job = done(launch(&[], THREE, &["exchange", "50"]));
    assert_eq!((job.status, job.error.as_str()), (Some(0), ""), "{job:?}");
    let all = [0, 1, 2].map(|node| format!("node {node} of 3, neighbours [0, 1, 2]"));
    assert_eq!(sorted(&job.output), all);
    let job = done(launch(&[], ".", &["exchange", "3"]));
    assert_eq!(job.output, "node 0 of 1, neighbours [0]\n");
}

pub(crate) fn arguments_and_environment_arrive_as_they_are() {
    let odd = ["two  words", "", "it's", "\"$HOME\" `id` \\ !! *", "line\nline", "--", "\u{e4}"];
    let mut does = vec!["tell", "ODD"];
    does.extend(odd);
    let words: String = odd.iter().map(|word| format!("<{}>", word.as_bytes().escape_ascii())).collect();
    let expected = format!("{words} a $b\\n /proc\n");
    // Through a shell, as ssh does, and without.
    for rsh in [r#"sh -c 'shift; eval "$*"' sh"#, "env -u"] {
        let without = if rsh.starts_with("env") { "yes" } else { "no" };
        let options =
            ["--set", "ODD=a $b\n", "--directory", "/proc", "--rsh", rsh, "--without-shell", without];
        let job = done(launch(&options, "far", &does));
        assert_eq!((job.output.as_str(), job.status), (expected.as_str(), Some(0)), "{job:?}");
    }
    // An agent in a folder whose name a shell would split.
    let folder = Folder::new("it's a $folder");
    let agent = folder.0.join("the agent");
    std::os::unix::fs::symlink(this(), &agent).unwrap();
    let agent = format!("{}|agent", agent.to_str().unwrap());
    let options = ["--rsh", r#"sh -c 'shift; eval "$*"' sh"#, "--agent", &agent];
    let job = done(launch(&options, "far", &["exchange", "1"]));
    assert_eq!((job.output.as_str(), job.status), ("node 0 of 1, neighbours [0]\n", Some(0)), "{job:?}");
}

pub(crate) fn what_nodes_print_arrives_whole_by_lines() {
    // 10 MB in all.
    for (lines, length) in [("60000", 40), ("34", 100_000)] {
        let job = done(launch(&[], THREE, &["print", lines, &length.to_string()]));
        assert_eq!(job.status, Some(0), "{}", job.error);
        let fill = "x".repeat(length);
        let mut next = [0_u32; 3];
        if length < 60_000 {
            for line in job.output.lines().filter(|line| !line.ends_with(" rest")) {
                let node: usize = line.split(' ').next().unwrap().parse().unwrap();
                assert_eq!(line, format!("{node} {} {fill} end", next[node]));
                next[node] += 1;
            }
            assert_eq!(next.map(|next| next.to_string()), [lines; 3]);
        }
        let xs = job.output.bytes().filter(|&byte| byte == b'x').count();
        assert_eq!(xs, 3 * length * lines.parse::<usize>().unwrap());
        assert_eq!(job.output.matches(" rest\n").count(), 3);
        assert_eq!(sorted(&job.error), ["0 error", "1 error", "2 error"]);
    }
    let alone = done(launch(&[], ".", &["print", "2", "1"]));
    assert_eq!(alone.output, "0 0 x end\n0 1 x end\n0 rest", "{alone:?}");
}

pub(crate) fn a_closed_output_ends_the_job() {
    // The output is closed early, as with `| head`.
    let mut child = launch(&["--grace", "100"], THREE, &["print", "60000", "40"]).spawn().unwrap();
    drop(child.stdout.take());
    let job = finish(child, Vec::new());
    assert_eq!(job.status, Some(1), "{job:?}");
    assert!(job.error.contains("standard output cannot be written"), "{job:?}");
}

pub(crate) fn standard_input_goes_to_node_0() {
    let bytes: Vec<u8> = (0..10_000_000_u32).map(|number| (number / 3) as u8).collect();
    let sum = bytes.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let mut command = launch(&[], THREE, &["cat"]);
    command.stdin(Stdio::piped());
    let job = finish(command.spawn().unwrap(), bytes);
    assert_eq!(
        sorted(&job.output),
        [format!("0 read 10000000 {sum}"), "1 read 0 0".into(), "2 read 0 0".into()]
    );
    // Input that nobody reads blocks nothing.
    let mut command = launch(&[], THREE, &["exchange", "2"]);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _open = child.stdin.take();
    assert_eq!(finish(child, Vec::new()).status, Some(0));
}

pub(crate) fn a_node_that_fails_ends_the_job() {
    for (node, status) in [(0, 3), (2, 255)] {
        let job = done(launch(&[], THREE, &["status", &node.to_string(), &status.to_string()]));
        let host = if node == 1 { "." } else { "localhost" };
        let said = format!("atoll: node {node} on {host}: the program ended with status {status}\n");
        assert_eq!((job.status, job.error), (Some(status), said));
    }
}

pub(crate) fn a_node_that_ends_early_is_not_waited_for() {
    let job = done(launch(&[], THREE, &["early"]));
    assert_eq!((job.status, sorted(&job.output)), (Some(0), vec!["node 0 knows", "node 2 knows"]), "{job:?}");
}

pub(crate) fn what_cannot_start_says_why() {
    let fails = |options: &[&str], hosts: &str, status: i32, says: &str| {
        let job = done(launch(options, hosts, &["exchange", "1"]));
        assert_eq!(job.status, Some(status), "{job:?}");
        assert!(job.error.lines().last().unwrap().contains(says), "{says:?} is not in {job:?}");
    };
    fails(&["--agent", "/nowhere/atoll|agent"], ".", 1, "there is no command /nowhere/atoll");
    fails(&["--agent", "/bin/true"], ".,.", 1, " on .: /bin/true ended with status 0 before it spoke");
    fails(&["--rsh", "/nowhere/ssh"], "far", 1, "there is no /nowhere/ssh here: install openssh-client");
    fails(&["--rsh", "/nowhere/rsh"], "far", 1, "there is no command /nowhere/rsh here");
    let shell = r#"sh -c 'shift; eval "$*"' sh"#;
    fails(&["--rsh", shell, "--agent", "/nowhere/atoll|agent"], "far", 1, "install atoll there");
    fails(&["--rsh", shell, "--agent", "/dev/null"], "far", 1, "executable");
    fails(
        &["--rsh", "sh -c 'sleep 100; true'", "--timeout", "300"],
        "far",
        1,
        "node 0 on far: did not start within 300ms",
    );
    fails(&["--directory", "/nowhere"], ".", 127, "there is no directory /nowhere");
    fails(&[], ",", 2, "no host was given");
    fails(&[], "-oProxyCommand=id", 2, "is no host");
    fails(&["--agent", "-x"], "far", 2, "the command of the agent");

    let mut command = launch(&[], ".,.", &[]);
    command = std::process::Command::new(command.get_program());
    let job = command.args(["launch", ".,.", "no-such-program"]).output().unwrap();
    let said = String::from_utf8(job.stderr).unwrap();
    assert!(said.contains("there is no program no-such-program: install it there"), "{said}");
    assert_eq!(job.status.code(), Some(127));
}

pub(crate) fn a_login_shell_may_print() {
    let rsh = r#"sh -c 'printf "Welcome!\n\033[1mno newline"; echo careful >&2; shift; eval "$*"' sh"#;
    let job = done(launch(&["--rsh", rsh], "far,far", &["exchange", "3"]));
    assert_eq!(job.status, Some(0), "{job:?}");
    assert_eq!(job.output.lines().count(), 2);
    let expected = [
        "far: \u{1b}[1mno newline",
        "far: \u{1b}[1mno newline",
        "far: Welcome!",
        "far: Welcome!",
        "far: careful",
    ];
    assert_eq!(sorted(&job.error)[..5], expected);
    // A login shell that goes on printing is told from an agent.
    let folder = Folder::new("mail");
    let mail = format!("while [ ! -e {}/0.keeper ]; do sleep 0.05; done; echo You have mail.", folder.str());
    let rsh = format!(r#"sh -c 'shift; ({mail}) & eval "$*"' sh"#);
    let job = done(launch(&["--rsh", &rsh, "--grace", "100"], "far", &["sleep", folder.str()]));
    assert_eq!(job.status, Some(1), "{job:?}");
    assert!(job.error.contains("node 0 on far: what its agent says makes no sense (a frame of"), "{job:?}");
    all_end(&pids(&folder.0, 1));
}

pub(crate) fn no_secret_in_arguments_or_environment() {
    let job = done(launch(&[], THREE, &["secret"]));
    assert_eq!(
        (job.status, sorted(&job.output)),
        (Some(0), vec!["node 0 looked", "node 1 looked", "node 2 looked"])
    );
}

pub(crate) fn a_program_that_speaks_at_once_was_started_before() {
    // A node's first exchange reached the launcher before the message that it runs.
    for _ in 0..100 {
        let job = done(launch(&[], ".", &["print", "0", "0"]));
        assert_eq!((job.status, job.output.as_str()), (Some(0), "0 rest"), "{job:?}");
    }
}

pub(crate) fn a_child_of_a_node_is_no_node() {
    let job = done(launch(&[], THREE, &["child"]));
    let expected = vec!["node 0 again", "node 1 again", "node 2 again"];
    assert_eq!((job.status, sorted(&job.output)), (Some(0), expected), "{job:?}");
}

pub(crate) fn what_is_left_of_a_login_holds_up_nothing() {
    // The process left the remote shell's session with its pipes open, so the launcher waited for it.
    let rsh = r#"sh -c 'shift; setsid sleep 15 & eval "$*"' sh"#;
    let begin = std::time::Instant::now();
    let job = done(launch(&["--rsh", rsh], "far", &["status", "0", "0"]));
    assert_eq!(job.status, Some(0), "{job:?}");
    assert!(begin.elapsed().as_secs() < 14);
}
