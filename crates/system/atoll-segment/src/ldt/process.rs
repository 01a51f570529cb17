//! 32-bit segments in a process of their own that can make no system call, for programs that mean harm.
//!
//! In `LdtCores` a far jump to Linux's 64-bit code segment leads to atoll's own memory. Here it leads to an unused copy of that
//! memory. The kernel stops this process at every system call, of whatever kind and from wherever (ptrace's system-call
//! emulation), and never lets it make one. The paging side is the tracing process: it looks at the registers, serves the call
//! on the memory that both share, and has the program go on. That costs a switch of processes for each call. Between calls the
//! program runs at native speed. There is one core.
//!
//! The segment is as in `mod.rs`: data and stack by base and limit, code because nothing is mapped beyond.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsRawFd;

use super::descriptors::{self, CODE, DATA};
use super::{BASE, GATE, LOW, MOST, PAGE};
use crate::backend::{Cores, End, Kind, Program, SegmentError, machine, segment_bytes};
use crate::calls::{Caller, Delegate, Outcome, THREAD_DESCRIPTOR};
use crate::errno::Errno;
use crate::memory::{Memory, file};
use crate::plan::{self, LEAST, Loaded};
use crate::shared_object::shared_object;
use crate::stage::Stage;
use crate::violation::{Registers, Violation, explain};

/// The offset of the entry to system calls, from the gate's start.
const CALL: u32 = 0x100;
const INT_80: [u8; 2] = [0xcd, 0x80];
const RET: u8 = 0xc3;

/// Cores of 32-bit segments in a process of their own.
#[derive(Debug)]
pub struct ProcessCores {
    stage: Stage<Prepared, Running>,
}

#[derive(Debug)]
struct Prepared {
    memory: Memory,
    file: File,
    loaded: Loaded,
}

#[derive(Debug)]
struct Running {
    /// Kept because the delegate's window is on it.
    _memory: Memory,
    _file: File,
    delegate: Delegate,
    traced: Traced,
}

/// The process with the segment, stopped whenever atoll looks at it; killed with this value.
#[derive(Debug)]
struct Traced {
    pid: libc::pid_t,
    /// Whether the process was waited for, so that its number may be another's.
    gone: Cell<bool>,
}

impl Drop for Traced {
    fn drop(&mut self) {
        if self.gone.get() {
            return;
        }
        // SAFETY: our child, which was not waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// How a traced process stopped.
enum Stopped {
    Call,
    Signal(i32),
    Ended(End),
}

/// Requests of ptrace, by their numbers in the kernel's interface of x86.
const SYSEMU: libc::c_uint = 31;
const SET_THREAD_AREA: libc::c_uint = 26;

fn last() -> std::io::Error {
    std::io::Error::last_os_error()
}

impl Traced {
    fn ask(&self, request: libc::c_uint, address: u64, data: u64) -> std::io::Result<()> {
        // SAFETY: our child, which is stopped; the callers' data is as long as the request reads or writes.
        match unsafe { libc::ptrace(request, self.pid, address, data) } {
            -1 => Err(last()),
            _ => Ok(()),
        }
    }

    fn registers(&self) -> std::io::Result<libc::user_regs_struct> {
        // SAFETY: plain data, for which zeros are valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        self.ask(libc::PTRACE_GETREGS, 0, &raw mut registers as u64)?;
        Ok(registers)
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) -> std::io::Result<()> {
        self.ask(libc::PTRACE_SETREGS, 0, std::ptr::from_ref(registers) as u64)
    }

    /// Goes on until the next system call, which is not made, or until a signal.
    fn go_on(&self, signal: i32) -> std::io::Result<()> {
        self.ask(SYSEMU, 0, signal as u64)
    }

    fn wait(&self) -> std::io::Result<Stopped> {
        const CALLED: i32 = libc::SIGTRAP | 0x80;
        let mut status = 0;
        // SAFETY: our child.
        while unsafe { libc::waitpid(self.pid, &raw mut status, 0) } < 0 {
            let error = last();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        self.gone.set(!libc::WIFSTOPPED(status));
        Ok(if libc::WIFSIGNALED(status) {
            Stopped::Ended(End::Signal(libc::WTERMSIG(status), None))
        } else if libc::WIFEXITED(status) {
            Stopped::Ended(End::Status(libc::WEXITSTATUS(status)))
        } else if libc::WSTOPSIG(status) == CALLED {
            Stopped::Call
        } else {
            Stopped::Signal(libc::WSTOPSIG(status))
        })
    }

    /// Makes `base` the program's thread pointer. libc reaches below it, so its offsets wrap round all of 4 GiB.
    fn set_thread_pointer(&self, base: u32) -> std::io::Result<()> {
        let descriptor = descriptors::thread_pointer(base);
        self.ask(SET_THREAD_AREA, u64::from(THREAD_DESCRIPTOR), &raw const descriptor as u64)
    }
}

impl ProcessCores {
    /// Makes cores without a program.
    ///
    /// # Errors
    /// The kernel has no 32-bit segments.
    pub fn new() -> Result<ProcessCores, SegmentError> {
        super::needs(Kind::Process)?;
        Ok(ProcessCores { stage: Stage::default() })
    }
}

impl Cores for ProcessCores {
    fn load(&mut self, program: &Program, bytes: u64) -> Result<(), SegmentError> {
        program.for_width(Kind::Process)?;
        let bytes = segment_bytes(bytes, PAGE as u64, LEAST..=MOST, "a 32-bit program reaches 4 GiB")?;
        let refused = |error| SegmentError::Memory { bytes, error };
        let file = file(c"atoll-segment")?;
        file.set_len(bytes).map_err(refused)?;
        let memory = Memory::shared(file.as_raw_fd(), bytes as usize).map_err(refused)?;
        let mut gate = shared_object(CALL);
        gate.resize(CALL as usize, 0);
        gate.extend(INT_80);
        gate.push(RET);
        memory
            .window(0, 0, bytes)
            .write_bytes(u64::from(GATE), &gate)
            .map_err(|e| machine("the gate")(std::io::Error::from_raw_os_error(e.0)))?;
        let window = memory.window(0, LOW, bytes);
        let gate = Some((u64::from(GATE), u64::from(GATE + CALL)));
        let loaded = plan::load(program, window, memory.discard(), gate, false)?;
        self.stage = Stage::Loaded(Prepared { memory, file, loaded });
        Ok(())
    }

    fn start(&mut self) -> Result<(), SegmentError> {
        let Prepared { memory, file, loaded: Loaded { delegate, entry, stack, .. } } = self.stage.loaded()?;
        delegate.hide(file.as_raw_fd());
        let failed = machine("starting the segment's process");
        // SAFETY: the child makes system calls only; no other thread of ours holds a lock, as there is none.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => return Err(failed(last())),
            0 => become_core(file.as_raw_fd(), memory.bytes()),
            _ => {}
        }
        let traced = Traced { pid, gone: Cell::new(false) };
        match traced.wait().map_err(&failed)? {
            Stopped::Signal(libc::SIGSTOP) => {}
            Stopped::Ended(End::Status(libc::EPERM)) => {
                let why = "the kernel lets no process be traced: set kernel.yama.ptrace_scope to 1 or 0 (or allow ptrace in the container)";
                return Err(SegmentError::Unavailable { kind: Kind::Process, why: why.to_owned() });
            }
            Stopped::Ended(End::Status(errno)) => {
                return Err(failed(std::io::Error::from_raw_os_error(errno)));
            }
            _ => return Err(failed(std::io::Error::other("it did not stop as it should"))),
        }
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
        let begin = || {
            traced.ask(libc::PTRACE_SETOPTIONS, 0, options as u64)?;
            let mut r = traced.registers()?;
            (r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp) = (0, 0, 0, 0, 0, 0, 0);
            (r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15) = (0, 0, 0, 0, 0, 0, 0, 0);
            (r.rip, r.rsp, r.eflags) = (entry, stack, 0x202);
            let (code, data) = (u64::from(CODE), u64::from(DATA));
            (r.cs, r.ss, r.ds, r.es, r.fs, r.gs) = (code, data, data, data, 0, 0);
            // No system call is in progress that could be made again.
            (r.fs_base, r.gs_base, r.orig_rax) = (0, 0, u64::MAX);
            traced.set_registers(&r)
        };
        begin().map_err(&failed)?;
        self.stage = Stage::Running(Running { _memory: memory, _file: file, delegate, traced });
        Ok(())
    }

    fn serve(&mut self) -> Result<End, SegmentError> {
        let mut running = self.stage.running()?;
        let end = running.serve().or_else(|error| match error.raw_os_error() {
            // Another process killed it while it was stopped.
            Some(libc::ESRCH) => match running.traced.wait()? {
                Stopped::Ended(end) => Ok(end),
                _ => Err(error),
            },
            _ => Err(error),
        });
        end.map_err(machine("tracing the segment's process"))
    }
}

/// What the child does between its start and its first stop; it never returns.
fn become_core(memory: i32, bytes: usize) -> ! {
    let prepare = || {
        let pages = (bytes / PAGE) as u32;
        descriptors::set_segments(BASE, pages)?;
        let (at, len) = (GATE as usize, bytes - GATE as usize);
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let offset = i64::from(GATE);
        // SAFETY: where nothing is mapped; the gate is then made read-only, what is between it and the program unreachable.
        unsafe {
            if libc::mmap(at as *mut libc::c_void, len, all, flags, memory, offset) == libc::MAP_FAILED
                || libc::mprotect(at as *mut libc::c_void, PAGE, libc::PROT_READ | libc::PROT_EXEC) != 0
                || libc::mprotect((at + PAGE) as *mut libc::c_void, LOW as usize - at - PAGE, libc::PROT_NONE)
                    != 0
                || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
                || libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == -1
                || libc::raise(libc::SIGSTOP) != 0
            {
                return Err(last());
            }
        }
        // The registers are different when it goes on.
        Err::<(), _>(std::io::Error::from_raw_os_error(libc::ECANCELED))
    };
    let errno = prepare().err().and_then(|error| error.raw_os_error()).unwrap_or(libc::EINVAL);
    // SAFETY: ends this process.
    unsafe { libc::_exit(errno) }
}

/// What the program does after a call.
enum Next {
    On(u64),
    End(End),
}

impl Running {
    fn serve(&mut self) -> std::io::Result<End> {
        let mut caller = Caller::default();
        let mut signal = 0;
        loop {
            self.traced.go_on(signal)?;
            signal = 0;
            match self.traced.wait()? {
                Stopped::Ended(end) => return Ok(end),
                Stopped::Call => {
                    let r = self.traced.registers()?;
                    if r.cs != u64::from(CODE) {
                        return Ok(left(r.cs));
                    }
                    match self.call(&mut caller, &r)? {
                        Next::On(value) => {
                            self.traced.set_registers(&libc::user_regs_struct {
                                rax: value & 0xffff_ffff,
                                orig_rax: u64::MAX,
                                ..r
                            })?;
                        }
                        Next::End(end) => return Ok(end),
                    }
                }
                Stopped::Signal(which) if FAULTS.contains(&which) => {
                    return self.fault(which, caller.thread_pointer);
                }
                // A stop is meant for all of atoll, and reaches atoll by itself. A signal that the program ignores is ignored.
                Stopped::Signal(which) => {
                    let ignored = self.delegate.signals().take(which).handler == 1;
                    let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&which);
                    signal = if ignored || stops { 0 } else { which };
                }
            }
        }
    }

    fn call(&self, caller: &mut Caller, r: &libc::user_regs_struct) -> std::io::Result<Next> {
        let arguments = [r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp].map(|n| n & 0xffff_ffff);
        Ok(match self.delegate.serve(caller, r.orig_rax as u32, arguments) {
            Outcome::Value(value) => Next::On(value),
            Outcome::ThreadPointer { base } => {
                self.traced.set_thread_pointer(BASE.wrapping_add(base as u32))?;
                Next::On(0)
            }
            Outcome::Clone(_) => Next::On(Errno(libc::ENOSYS).returned()),
            Outcome::SignalReturn { .. } => {
                let why = "it returned from a signal handler, and none is run here";
                Next::End(End::Signal(libc::SIGSEGV, Some(why.to_owned())))
            }
            // The end of the only core is the program's end.
            Outcome::EndCore(status) | Outcome::End(status) => Next::End(End::Status(status)),
            Outcome::Kill(signal) => Next::End(End::Signal(signal, None)),
        })
    }

    /// Returns how a program ended that the processor stopped.
    fn fault(&self, signal: i32, thread_pointer: u64) -> std::io::Result<End> {
        let r = self.traced.registers()?;
        if r.cs != u64::from(CODE) {
            return Ok(left(r.cs));
        }
        // SAFETY: plain data, for which zeros are valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        self.traced.ask(libc::PTRACE_GETSIGINFO, 0, &raw mut info as u64)?;
        // The signal was sent by a program that may send signals, not caused by a fault.
        let sent = info.si_code <= 0;
        if sent || ![libc::SIGSEGV, libc::SIGBUS].contains(&signal) {
            return Ok(End::Signal(signal, None));
        }
        let registers = Registers {
            eax: r.rax as u32,
            ebx: r.rbx as u32,
            ecx: r.rcx as u32,
            edx: r.rdx as u32,
            esi: r.rsi as u32,
            edi: r.rdi as u32,
            ebp: r.rbp as u32,
            esp: r.rsp as u32,
            eip: r.rip as u32,
            eflags: r.eflags as u32,
        };
        let window = self.delegate.window();
        let mut code = [0_u8; 15];
        let there = code.len().min(window.limit().saturating_sub(r.rip) as usize);
        // An instruction outside the segment cannot be read, and none of its bytes is needed.
        let _ = window.read_bytes(r.rip, &mut code[..there]);
        let mut found = explain(&code[..there], &registers, thread_pointer, window.low(), window.limit());
        // SAFETY: a fault's information has an address, of which only page faults' is one.
        let address = unsafe { info.si_addr() } as u64;
        if found.offset.is_none() && (1..1 << 32).contains(&address) {
            found = Violation { offset: Some(address), bytes: 1, ..found };
        }
        // Violations of the stack segment come as SIGBUS, and mean the same.
        Ok(End::Signal(libc::SIGSEGV, Some(found.to_string())))
    }
}

const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Returns how a program ended that is no longer in its code segment.
fn left(code_segment: u64) -> End {
    let why = format!("it left its segments by a far jump (to code segment {code_segment:#x})");
    End::Signal(libc::SIGSYS, Some(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tests::small;

    /// Runs sixteen bytes of code in a segment of 256 MiB.
    fn run(code: [u8; 16]) -> Result<End, SegmentError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let file = small(|file| {
            let at = file.len() - code.len();
            file[at..].copy_from_slice(&code);
        });
        std::fs::write(&path, file).unwrap();
        let mut cores = ProcessCores::new()?;
        cores.load(&Program::open(&path, vec!["program".into()], vec![])?, 256 << 20)?;
        cores.start()?;
        cores.serve()
    }

    /// mov eax, 1 (exit); mov ebx, 7; int 0x80
    const EXIT_7: [u8; 16] = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80, 0x90, 0x90, 0x90, 0x90];
    /// mov byte [0x10000000], 1
    const BEYOND: [u8; 16] =
        [0xc6, 0x05, 0, 0, 0, 0x10, 1, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];

    #[test]
    fn calls_are_served_and_what_goes_beyond_the_limit_is_named() {
        match run(EXIT_7) {
            Err(why @ SegmentError::Unavailable { .. }) => atoll_skips::skip!("{why}"),
            end => assert_eq!(end.unwrap(), End::Status(7)),
        }
        let End::Signal(libc::SIGSEGV, Some(why)) = run(BEYOND).unwrap() else { panic!("it went on") };
        assert!(why.starts_with("the write of 1 bytes at offset 0x10000000 is outside"), "{why}");
    }

    #[test]
    fn who_may_not_trace_is_told_so() {
        let step = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let (load, equal, answer) = (
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::BPF_RET | libc::BPF_K,
        );
        let mut filter = [
            step(load, 0, 0),
            step(equal, 1, libc::SYS_ptrace as u32),
            step(answer, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            step(answer, 0, libc::SECCOMP_RET_ALLOW),
        ];
        // The filter holds for this thread, and for the processes that it starts.
        let told = std::thread::spawn(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            // SAFETY: two calls that end with the thread; the filter is valid.
            let set = unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                    && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
            };
            assert!(set, "no filter ({})", last());
            run(EXIT_7).unwrap_err().to_string()
        });
        let told = told.join().unwrap();
        assert!(told.starts_with("no process cores here: "), "{told}");
    }
}
