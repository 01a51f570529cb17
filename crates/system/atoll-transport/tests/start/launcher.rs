//! The launcher's side: the actions of a command around [`Launch`].

use std::time::Duration;

use atoll_transport::start::{Launch, Rsh};

/// `[--OPTION VALUE]... HOST,HOST... PROGRAM ARGUMENT...`
pub(crate) fn main(words: &[String]) {
    let this = std::env::current_exe().unwrap().into_os_string();
    let mut launch = Launch::new(Vec::new(), "", vec![this, "agent".into()]);
    let mut words = words.iter();
    let mut shell = true;
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap();
        match word.as_str() {
            "--rsh" => launch.rsh = Rsh::parse(value()).unwrap(),
            "--without-shell" => shell = value() == "no",
            "--agent" => launch.agent = value().split('|').map(Into::into).collect(),
            "--timeout" => launch.timeout = Duration::from_millis(value().parse().unwrap()),
            "--grace" => launch.grace = Duration::from_millis(value().parse().unwrap()),
            "--directory" => launch.directory = Some(value().into()),
            "--set" => {
                let (name, value) = value().split_once('=').unwrap();
                launch.environment.push((name.into(), value.into()));
            }
            hosts => {
                launch.hosts = hosts.split(',').filter(|host| !host.is_empty()).map(Into::into).collect();
                launch.program = words.next().unwrap().into();
                launch.arguments = words.by_ref().map(Into::into).collect();
            }
        }
    }
    if !shell {
        launch.rsh = launch.rsh.without_shell();
    }
    let status = match launch.run() {
        Ok(outcome) => {
            outcome.failure.iter().for_each(|failure| eprintln!("atoll: {failure}"));
            outcome.status()
        }
        Err(e) => {
            eprintln!("atoll: {e}");
            2
        }
    };
    std::process::exit(status.into());
}
