//! Prints what the regions of a program do, and the time of the analysis: `regions [--all] PROGRAM [LIBRARY...]`. With `--all`
//! it examines all named functions.

use std::time::Instant;

use atoll_code::{Code, Verdict, elf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths: Vec<String> = std::env::args().skip(1).collect();
    let all = paths.first().is_some_and(|first| first == "--all");
    paths.drain(..usize::from(all));
    let files = paths.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
    let begun = Instant::now();
    let mut images = Vec::new();
    for (number, (path, bytes)) in paths.iter().zip(&files).enumerate() {
        images.push(elf::file(path, bytes, 0x5555_0000_0000 + ((number as u64) << 32))?);
    }
    let code = Code::new(elf::link(images));
    println!("objects read in {:.1?}", begun.elapsed());
    let Some(program) = code.objects().first() else { return Err("no program given".into()) };
    let (mut total, mut instructions) = (std::time::Duration::ZERO, 0);
    for function in &program.functions {
        let Some(name) =
            function.name.filter(|n| all || n.contains("._omp_fn.") || n.contains(".omp_outlined"))
        else {
            continue;
        };
        let begun = Instant::now();
        let reach = code.reach(function.start);
        let took = begun.elapsed();
        total += took;
        instructions += reach.instructions;
        let verdict = match &reach.verdict {
            Verdict::Plain => "plain".to_string(),
            Verdict::Atomic(finding) => format!("atomic: {}", code.sentence(finding)),
            Verdict::Unknown(finding) => format!("unknown: {}", code.sentence(finding)),
        };
        let calls: Vec<&str> = reach.calls.keys().map(String::as_str).collect();
        println!(
            "{name:36} {took:>9.1?} {:>7} instructions  {verdict}  [{}]",
            reach.instructions,
            calls.join(" ")
        );
    }
    println!("all regions: {instructions} instructions in {total:.1?}");
    Ok(())
}
