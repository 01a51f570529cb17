//! Writes a profile for the Firefox Profiler: a thread for each worker, each sample with its region, function and variable as a
//! stack.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use atoll_record::profile::Profile;
use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile as Firefox, ReferenceTimestamp,
    SamplingInterval, ThreadHandle, Timestamp,
};

use super::{Failed, rows};

/// Writes the profile's samples.
///
/// # Errors
/// The error of reading or writing.
pub(super) fn write(profile: &Profile, to: &mut dyn Write) -> Result<(), Failed> {
    let header = &profile.header;
    let since = Duration::try_from_secs_f64(header.started_unix_seconds).unwrap_or_default();
    let interval =
        header.samplers.first().filter(|info| info.period_unit == "ns").map_or(1_000_000, |i| i.period);
    let program = header.arguments.first().map_or(&*header.program, |name| &**name);
    let mut firefox = Firefox::new(
        program,
        ReferenceTimestamp::from_duration_since_unix_epoch(since),
        SamplingInterval::from_nanos(interval.max(1)),
    );
    let mut processes = HashMap::new();
    let mut threads: Vec<ThreadHandle> = Vec::new();
    for (number, worker) in profile.workers.iter().enumerate() {
        let begin = Timestamp::from_nanos_since_reference(worker.begin_ns);
        let process =
            *processes.entry(worker.pid).or_insert_with(|| firefox.add_process(program, worker.pid, begin));
        let thread = firefox.add_thread(process, worker.tid, begin, worker.pid == worker.tid);
        let name = worker.number.map_or_else(|| format!("thread {number}"), |n| format!("worker {n}"));
        firefox.set_thread_name(thread, &name);
        if worker.end_ns != u64::MAX {
            firefox.set_thread_end_time(thread, Timestamp::from_nanos_since_reference(worker.end_ns));
        }
        threads.push(thread);
    }
    rows(profile, |row| {
        let Some(&thread) = threads.get(row.sample.worker as usize) else { return Ok(()) };
        let region = row.region.map(|region| region.name.as_str());
        let variable = row.variable.map(|v| (v.name.as_str(), v.place()));
        let mut labels: Vec<String> = region.map(str::to_owned).into_iter().collect();
        labels.push(match variable {
            Some((name, place)) if !place.is_empty() => format!("{name} ({place})"),
            Some((name, _)) => name.to_owned(),
            None => "memory that is not known".to_owned(),
        });
        let frames: Vec<FrameInfo> = labels
            .iter()
            .map(|label| FrameInfo {
                frame: Frame::Label(firefox.intern_string(label)),
                category_pair: CategoryHandle::OTHER.into(),
                flags: FrameFlags::empty(),
            })
            .collect();
        let stack = firefox.intern_stack_frames(thread, frames.into_iter());
        let time = Timestamp::from_nanos_since_reference(row.sample.time_ns);
        firefox.add_sample(thread, time, stack, CpuDelta::ZERO, 1);
        Ok(())
    })?;
    serde_json::to_writer(to, &firefox)?;
    Ok(())
}
