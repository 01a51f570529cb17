//! Tests profiles whose writer was killed: they hold what was promised, and their readers say that they are not whole.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use atoll_e2e::build::{atoll, helper_with};
use atoll_e2e::skip;
use atoll_record::profile::Profile;

fn run(words: &[&str], file: &Path, folder: &Path) -> Output {
    let mut command = Command::new(atoll());
    command.args(words).arg(file).current_dir(folder);
    command.output().expect("it runs")
}

/// A profile whose launcher was killed after two seconds had no byte in it; `export`, `diff` and `report` read half a profile
/// without a word, with exit status 0; `show` said that it is damaged.
#[test]
fn half_a_profile_was_empty_or_read_without_a_word() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("half.atoll");
    let program = helper_with("hot.c", &["-O1", "-g", "-fopenmp"]);
    let profile = |file: &Path, rounds: &str| {
        let mut command = Command::new(atoll());
        command.args(["profile", "--overhead", "10%", "-o"]).arg(file).arg("--").arg(&program).arg(rounds);
        command.env("OMP_NUM_THREADS", "2").stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("it starts")
    };
    let mut launcher = profile(&file, "1000000");
    std::thread::sleep(Duration::from_secs(2));
    if let Ok(Some(status)) = launcher.try_wait() {
        skip!("nothing can be sampled here: {status}");
    }
    launcher.kill().expect("it is killed");
    launcher.wait().expect("it ends");
    let half = Profile::open(&file).expect("what was written can be read");
    assert!(half.lacks().is_some() && half.seconds() > 1.0 && half.samples > 100, "{} s", half.seconds());

    let whole = folder.path().join("whole.atoll");
    assert!(profile(&whole, "4").wait().expect("it ends").success());
    for words in [
        &["report", "--text"][..],
        &["report", "--no-open"],
        &["export", "--csv"],
        &["show"],
        &["show", "--json"],
    ] {
        for (file, status) in [(&file, 3), (&whole, 0)] {
            let run = run(words, file, folder.path());
            let said = String::from_utf8_lossy(&run.stderr);
            assert_eq!(run.status.code(), Some(status), "{words:?}: {said}");
            assert_eq!(
                said.contains("is half a profile: it was not finished"),
                status == 3,
                "{words:?}: {said}"
            );
            assert!(!run.stdout.is_empty() || words[1] == "--no-open", "{words:?}: {said}");
        }
    }
    let shown = run(&["show"], &file, folder.path());
    assert!(String::from_utf8_lossy(&shown.stdout).contains("this profile was not finished"));
    for (sides, status) in [([&file, &whole], 3), ([&whole, &file], 3), ([&whole, &whole], 0)] {
        let diff = Command::new(atoll()).arg("diff").args(sides).output().expect("it runs");
        assert_eq!(diff.status.code(), Some(status), "{}", String::from_utf8_lossy(&diff.stderr));
    }
    // A file that holds nothing at all is refused.
    std::fs::write(&file, "").expect("written");
    assert_eq!(run(&["report", "--text"], &file, folder.path()).status.code(), Some(70));
}

/// Two profiles of one program overwrote each other.
#[test]
fn a_second_profile_overwrote_the_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = helper_with("hot.c", &["-O1", "-g", "-fopenmp"]);
    let start = |rounds: &str| {
        let mut command = Command::new(atoll());
        command.args(["profile", "--"]).arg(&program).arg(rounds).current_dir(folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    // The second profile begins while the first is being written.
    let first = start("12");
    let name = program.file_name().expect("a name").to_string_lossy().into_owned();
    let (file, kept) =
        (folder.path().join(format!("{name}.atoll")), folder.path().join(format!("{name}.1.atoll")));
    let began = Instant::now();
    while !file.exists() && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = start("2").wait_with_output().expect("it ends");
    let first = first.wait_with_output().expect("it ends");
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    if !first.status.success() {
        skip!("nothing can be sampled here: {}", said(&first));
    }
    assert!(said(&second).contains(&format!("is in {name}.1.atoll now")), "{}", said(&second));
    assert!(said(&first).contains(&format!("{name}.1.atoll` shows it")), "{}", said(&first));
    for (file, rounds) in [(&kept, "12"), (&file, "2")] {
        let profile = Profile::open(file).expect("a profile");
        assert_eq!((profile.lacks(), profile.header.arguments[1].as_str()), (None, rounds));
    }
}
